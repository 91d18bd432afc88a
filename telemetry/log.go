package telemetry

import (
	"context"
	"log/slog"
)

// NewLogger logs one JSON object a line to lines, from level on. The level
// may change at any time (level.Set). What is a warning or worse is handed to
// the sink at once, what is milder within flushEvery.
func NewLogger(lines *LineBuffer, level *slog.LevelVar) *slog.Logger {
	return slog.New(handler{slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: level}), lines})
}

// handler adds the urgency of warnings to slog's JSON handler.
type handler struct {
	slog.Handler
	lines *LineBuffer
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.lines.Hurry()
	}
	return err
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.lines}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.lines}
}
