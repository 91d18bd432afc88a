// Package fleet is what gateways share: each tells its demand once a cycle,
// one of them leads, and its plan reaches all. The state is soft: everything
// in it is told anew within a few cycles, and a gateway keeps working on its
// last plan when it hears of no other.
//
// Memory is the driver for gateways of one process, one alone included.
//
// The protocol of gateways that a network joins is here as values that know no
// network: Election decides who leads, Gate which plans are let in, Roll who
// reports; Key signs messages and checks them; Snapshot and Report are what
// they say.
package fleet
