package telemetry

import (
	"errors"
	"log/slog"
)

// Config is the [log] table of the configuration file. The zero value logs
// from info on.
type Config struct {
	Level Level `toml:"level"`
}

// Level is the least severe level that is logged. Its text form is one of
// debug, info, warn and error and nothing else: slog's own also reads "INFO+2".
type Level slog.Level

// levels are all values of Level, least severe first.
var levels = []struct {
	name  string
	level Level
}{
	{"debug", Level(slog.LevelDebug)},
	{"info", Level(slog.LevelInfo)},
	{"warn", Level(slog.LevelWarn)},
	{"error", Level(slog.LevelError)},
}

var errLevel = errors.New("want debug, info, warn or error")

func (l Level) String() string {
	for _, known := range levels {
		if known.level == l {
			return known.name
		}
	}
	return slog.Level(l).String()
}

// Level makes a Level a slog.Leveler.
func (l Level) Level() slog.Level { return slog.Level(l) }

// UnmarshalText reads the configuration value; the error says what is right.
func (l *Level) UnmarshalText(text []byte) error {
	for _, known := range levels {
		if known.name == string(text) {
			*l = known.level
			return nil
		}
	}
	return errLevel
}

// MarshalText writes the configuration value.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
