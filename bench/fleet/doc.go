// Command fleet measures gateways that plan together over NATS.
//
//	go run ./bench/fleet faults       real gateways, with faults between them and their store
//	go run ./bench/fleet store-gone   the same gateways while there is no store at all
//	go run ./bench/fleet converge     the same gateways beside one solver with the whole problem
//	go run ./bench/fleet rolling      every gateway replaced in turn, under load
//	go run ./bench/fleet scale        a thousand members on one server
//
// All but scale build the NATS server from its module, and start it (--servers 3:
// a cluster of three), simulated engines, and `penstock serve` once for each
// cluster; each gateway reaches each server by a line of its own, and is asked by
// HTTP as clients and operators do.
package main
