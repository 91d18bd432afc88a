// Package nats joins gateways over NATS: reports and snapshots by core
// publish and subscribe, which stores nothing, the lease and the last table in
// a JetStream bucket. What is decided is decided by the values of package
// fleet; here is when they are asked, and what their messages travel on.
//
// Nothing that the control cycle calls waits for the network: it reads and
// leaves values under a mutex, and Run's goroutines carry them.
//
// Subjects, where NAME and SOURCE have "=" for ".":
//
//	penstock.demand.SOURCE.NAME   a gateway's report, once a second
//	penstock.table.NAME           the leader's snapshots
//	penstock.roll                 asks the leader who reports
//	$KV.penstock.lease, .table    who leads, and the last whole table
package nats
