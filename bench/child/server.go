package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Server is a penstock that serves, a gateway or a simulated engine, with the
// addresses that it told.
type Server struct {
	*Process
	Address, Admin string
}

// ReadyLimit is how long a penstock may take to be ready.
const ReadyLimit = 20 * time.Second

// Serve runs a penstock with its output in the file log and waits until a log
// line with "msg":"ready" tells its addresses.
func Serve(ctx context.Context, log, command string, args ...string) (*Server, error) {
	p, err := Start("", log, nil, command, args...)
	if err != nil {
		return nil, err
	}
	s := &Server{Process: p}
	if err := p.Await(ctx, ReadyLimit, "ready", s.ready); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%s %w", filepath.Base(command), err)
	}
	return s, nil
}

// ready looks for the line.
func (s *Server) ready() bool {
	file, err := os.Open(s.Log())
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct{ Msg, Address, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			s.Address, s.Admin = line.Address, line.Admin
			return true
		}
	}
	return false
}
