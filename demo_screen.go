package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// screen is where the demo shows itself: a terminal, or text for a file.
type screen struct {
	w      io.Writer
	tty    bool
	colour bool
	drawn  int // lines of the block that redraw replaces
}

// newScreen looks at what w is. NO_COLOR in the environment, with any text,
// means no colour (no-color.org).
func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if c, ok := w.(*checkedWriter); ok {
		w = c.w
	}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		s.tty = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	s.colour = s.tty && os.Getenv("NO_COLOR") == ""
	return s
}

func (s *screen) printf(format string, args ...any) { fmt.Fprintf(s.w, format, args...) }

func (s *screen) style(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) bold(text string) string { return s.style("1", text) }
func (s *screen) dim(text string) string  { return s.style("2", text) }

// engine is the name of the i-th engine in a colour of its own.
func (s *screen) engine(i int, name string) string {
	colours := [...]string{"36", "33", "35", "32", "34"}
	return s.style(colours[max(i, 0)%len(colours)], name)
}

// redraw replaces the block that it drew last, on a terminal.
func (s *screen) redraw(block string) {
	if s.drawn > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA", s.drawn)
	}
	s.drawn = 0
	var out strings.Builder
	out.WriteString("\x1b[?7l") // what is wider than the terminal is cut, not wrapped
	for line := range strings.Lines(block) {
		out.WriteString(strings.TrimSuffix(line, "\n") + "\x1b[K\n")
		s.drawn++
	}
	fmt.Fprint(s.w, out.String()+"\x1b[J\x1b[?7h") // and what was below it is gone
}
