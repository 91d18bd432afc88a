// Command behaviour shows what a proxy does to its clients and to its engines
// when things go wrong: each row of its table is a scenario with two engines
// that fail on purpose, played behind Penstock and behind others, and judged
// by what the client and the engines saw.
//
//	go run ./bench/behaviour                                     # Penstock and every peer that is here
//	go run ./bench/behaviour --target penstock --row 'client leaves'
//	go run ./bench/behaviour --url http://127.0.0.1:8080 --engines 127.0.0.1:9000,127.0.0.1:9001
//	go run ./bench/behaviour --cost                              # CPU time per request and per chunk
//
// A proxy is a process of its own, started anew for every repetition of a row
// on ports that are free, and ended by its process id. With --url it is
// somebody else's, in front of engines that are started at the addresses of
// --engines and serve the model "m".
//
// A row is right for a proxy if every repetition was. A row that Penstock
// cannot hold before a part of it is built names that part and is "waiting";
// any other row that is wrong for Penstock makes the command fail.
package main
