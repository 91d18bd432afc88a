package proxy

import (
	"strconv"
	"time"

	"penstock/engine"
)

// Config is the [limits] table of the configuration file. A build that needs
// no file takes DefaultConfig; the zero value is not usable.
type Config struct {
	Body         int64         `toml:"body,size"`     // bytes of one request body; larger is a 413
	FirstContent time.Duration `toml:"first_content"` // upper bound of the wait for the first content event
	Stall        time.Duration `toml:"stall"`         // between two events of a stream
	BodyRead     time.Duration `toml:"body_read"`     // a client sending its request body
	Write        time.Duration `toml:"write"`         // one write to a client that reads slowly
	Idle         time.Duration `toml:"idle"`          // a client connection without a request
	QueueEntries int           `toml:"queue_entries"` // requests of one model that wait for an engine; 0 = twice what its engines take at once
	QueueWait    time.Duration `toml:"queue_wait"`    // of a critical request for an engine, others four fifths; 0 = none waits
}

// DefaultConfig is what holds where the file says nothing.
func DefaultConfig() Config {
	return Config{
		Body:         64 << 20,
		FirstContent: 600 * time.Second,
		Stall:        30 * time.Second,
		BodyRead:     30 * time.Second,
		Write:        30 * time.Second,
		Idle:         120 * time.Second,
		QueueWait:    10 * time.Second,
	}
}

// The bounds catch slips of the unit, not taste: a body of 64 bytes was meant
// in MiB, a limit of a few microseconds or of several days is none.
const (
	minBody  = 1 << 10
	maxBody  = 4 << 30
	minLimit = time.Millisecond
	maxLimit = 24 * time.Hour

	maxQueueEntries = 1_000_000
	maxQueueWait    = 10 * time.Minute
)

// Validate returns every fault, keyed relative to [limits].
func (c Config) Validate() []engine.Fault {
	var faults []engine.Fault
	if c.Body < minBody || c.Body > maxBody {
		faults = append(faults, engine.Fault{Key: "body", Value: strconv.FormatInt(c.Body, 10),
			Want: `a size from "1KiB" to "4GiB"; a bare number counts bytes`})
	}
	for _, l := range []struct {
		key   string
		value time.Duration
	}{
		{"first_content", c.FirstContent},
		{"stall", c.Stall},
		{"body_read", c.BodyRead},
		{"write", c.Write},
		{"idle", c.Idle},
	} {
		if l.value < minLimit || l.value > maxLimit {
			faults = append(faults, engine.Fault{Key: l.key, Value: strconv.Quote(l.value.String()),
				Want: `a duration from "1ms" to "24h"`})
		}
	}
	if c.QueueEntries < 0 || c.QueueEntries > maxQueueEntries {
		faults = append(faults, engine.Fault{Key: "queue_entries", Value: strconv.Itoa(c.QueueEntries),
			Want: "a number from 1 to 1000000, or 0 for twice what the engines take at once"})
	}
	if c.QueueWait != 0 && (c.QueueWait < minLimit || c.QueueWait > maxQueueWait) {
		faults = append(faults, engine.Fault{Key: "queue_wait", Value: strconv.Quote(c.QueueWait.String()),
			Want: `a duration from "1ms" to "10m", or "0s" for no waiting`})
	}
	return faults
}
