package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"penstock/bench/child"
)

// store is the fleet's NATS: one server, or a cluster of three; each a process
// that was built from the server's module.
type store struct{ servers []*storeServer }

// storeServer can be ended and begun again, with what it had or without.
type storeServer struct {
	name, binary, config, log, dir string
	address                        string

	mu      sync.Mutex
	process *child.Process // nil: it does not run
}

// serverModule is the program, of the version in go.mod.
const serverModule = "github.com/nats-io/nats-server/v2"

// newStore builds the server and starts n of them.
func newStore(ctx context.Context, dir string, n int) (*store, error) {
	binary := filepath.Join(dir, "nats-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, serverModule)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build %s: %w: %s", serverModule, err, out)
	}
	s := &store{}
	var routes []string
	for i := range n {
		address, err := freePort()
		if err != nil {
			return nil, err
		}
		route, err := freePort()
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint("nats-", i)
		routes = append(routes, "nats://"+route)
		s.servers = append(s.servers, &storeServer{name: name, binary: binary, address: address, dir: filepath.Join(dir, name),
			config: filepath.Join(dir, name+".conf"), log: filepath.Join(dir, name+".log")})
	}
	for i, srv := range s.servers {
		text := fmt.Sprintf("server_name: %q\nlisten: %q\nmax_payload: 1MB\nping_interval: \"2s\"\nping_max: 2\nwrite_deadline: \"2s\"\n"+
			"jetstream { store_dir: %q, sync_interval: always, max_memory_store: 16MB, max_file_store: 256MB }\n", srv.name, srv.address, srv.dir)
		if n > 1 { // a client keeps to the addresses that it was given: its lines
			text += fmt.Sprintf("cluster { name: penstock, listen: %q, no_advertise: true, routes: [\"%s\"] }\n", strings.TrimPrefix(routes[i], "nats://"),
				strings.Join(routes, `", "`))
		}
		if err := os.WriteFile(srv.config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		if err := srv.start(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *storeServer) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	p, err := child.Start("", s.log, nil, s.binary, "-c", s.config)
	if err != nil {
		return err
	}
	s.process = p
	err = p.Await(context.Background(), 20*time.Second, "listening", func() bool {
		conn, err := net.DialTimeout("tcp", s.address, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

func (s *storeServer) halt(wipe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
	if wipe {
		os.RemoveAll(s.dir)
	}
}

// halt ends all servers at once.
func (s *store) halt(wipe bool) {
	for _, srv := range s.servers {
		srv.halt(wipe)
	}
}

func (s *store) start() error {
	for _, srv := range s.servers {
		if err := srv.start(); err != nil {
			return err
		}
	}
	return nil
}
