// Package load sends planned traffic to servers with an OpenAI-compatible API
// and measures what comes back, as a client sees it.
//
// A Plan is made before the first byte is sent, of a seed or of a trace: who asks
// when, how much, and for how much. The loop is open: a conversation begins at
// its instant however slow the answers are, and every latency counts from the
// instant at which the request was due, not from when it went out. A server that
// stalls is charged for all who waited, and so is a generator that is late: its
// own lag is a result of its own. Within a conversation the next turn is due a
// think time after the answer, as it is with people; a trace's requests go at
// the trace's times.
//
// Targets are measured in rounds: each plays the same plan in every round, one
// after the other in changing order, so that rounds are pairs.
package load
