// Package protect holds the mechanisms that keep the gateway and its engines
// standing: values with two or three methods that know no HTTP and no engine.
package protect
