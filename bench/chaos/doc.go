// Chaos sends requests through a real gateway before engines that fail in every
// way they can, and checks what clients, engines and the gateway's own metrics
// say of them: no truncated answer that looks complete, no request delivered
// twice that may not be, as few repeats as were promised, and accounts that add
// up.
//
// The gateway is the built binary in a process of its own; engines
// (enginetest.Sim) and clients are in this one. Each part has a gateway and
// engines of its own:
//
//	chaos   every engine's fault changes every second, HTTP/1.1 and h2c
//	tls     the same over TLS, h2 and HTTP/1.1
//	one     one engine of eight fails, in one way after the other, at a
//	        utilisation of 0.7 and at a steady rate
//	full    twice what the engines take, which say so and fail now and then
//	soak    as chaos, at a steady rate, for as long as --for says
package main
