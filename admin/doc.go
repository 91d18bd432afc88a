// Package admin is the operator's listener: health, metrics, the engines, the
// table, the record of a request, reload, drain, and orders to single engines. It reads the rest of the
// gateway and changes nothing but through the functions it is given. It has no
// authentication and so belongs on loopback.
package admin
