//go:build race

package main

// Under the race detector they work: as many at once as there are cores.
const testsAtOnce = ""
