// Package trace reads recorded traffic: the public traces of LLM services in
// the form they are published in, and a gateway's own access log. Every format
// becomes the same thing, Requests in time order.
//
// A format is found by looking at the content; gzip too. A file that is wrong
// is a *Fault with file, line, field and reason. Requests that come before the
// fault may have been read by then: who replays them ends with the error and
// shows no result. Rows that are right but no request to replay (failed ones,
// for instance) are left out and counted, with the reason.
//
// Two formats have no clock of their own and are drawn with a seed: sessions of
// weka start at random, ServeGen's clients are distributions. Same file, same
// options, same requests.
package trace
