package main

import "slices"

// behaviours is the first table, in the order in which it is printed.
func behaviours() []*row {
	return slices.Concat(brokenStreams(), failover(), deliveryRows(), departures(), silences(), overloads(), contents())
}
