// Package config is the configuration file as a whole: strict decoding with
// line numbers, defaults, and every package's own validation under one roof.
// It reports all faults of a file, not the first, and a key that this build
// does not act on is a fault: a rule that is read and not kept is worse than
// an error.
package config
