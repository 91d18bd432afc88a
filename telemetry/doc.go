// Package telemetry is how the process is watched: its log, one JSON object a
// line, buffered so that a slow reader of the log never slows a request.
package telemetry
