// Package experiments has those on routing quality that need no process and no
// network: pure decisions of the gateway's own code, on numbers and on virtual
// time. `penstock simulate --experiment NAME` runs one and prints its table, or
// JSON, and fails where what it shows is not what was aimed at.
//
// To add one: a file with its function, a row in experiments.
package experiments
