//go:build !race

package main

// Most tests wait, and work little.
const testsAtOnce = "12"
