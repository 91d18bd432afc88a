// Command fleet measures gateways that plan together over NATS.
//
//	go run ./bench/fleet faults       real gateways, with faults between them and their store
//	go run ./bench/fleet store-gone   the same gateways while there is no store at all
//	go run ./bench/fleet scale        a thousand members on one server
//
// faults and store-gone start a NATS server in this process, simulated engines,
// and `penstock serve` once for each cluster; each gateway reaches the store by
// a line of its own, and is asked by HTTP as clients and operators do.
package main
