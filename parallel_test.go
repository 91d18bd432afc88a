//go:build !race

package main

// Most tests wait more than they work.
const testsAtOnce = "4"
