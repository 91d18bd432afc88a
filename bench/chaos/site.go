package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"penstock/bench/child"
	"penstock/engine/enginetest"
)

const (
	modelName = "m"
	stopGrace = 200 * time.Millisecond // its drain is not what is looked at
)

// site is a gateway, the engines behind it and the clients before it.
type site struct {
	bench   *bench
	part    *part
	url     string
	gateway *child.Server
	sims    []*enginetest.Sim
	names   []string // of sims
	clients []*http.Client
	shut    context.CancelFunc // of sims
	open    sync.WaitGroup
}

// newSite starts everything and waits until every engine serves.
func newSite(ctx context.Context, b *bench, p *part, dir string) (s *site, err error) {
	running, shut := context.WithCancel(context.Background())
	s = &site{bench: b, part: p, shut: shut}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	file := "[listen]\naddress = \"127.0.0.1:0\"\n"
	scheme, trust := "http://", (*tls.Config)(nil)
	if p.tls {
		if trust, err = writePair(dir); err != nil {
			return s, err
		}
		file += "tls_cert = \"tls.crt\"\ntls_key = \"tls.key\"\n"
		scheme = "https://"
	}
	file += "[admin]\naddress = \"127.0.0.1:0\"\n" + p.config
	for i, c := range p.engines {
		c.Name, c.Seed = fmt.Sprintf("e%d", i), p.seed+uint64(i)
		url, err := s.startSim(running, c)
		if err != nil {
			return s, err
		}
		file += fmt.Sprintf("[[engine]]\nname = %q\nurl = %q\nmodels = [%q]\n%s\n", c.Name, url, modelName, p.perEngine)
	}
	path := filepath.Join(dir, "penstock.toml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		return s, err
	}
	if s.gateway, err = child.Serve(ctx, filepath.Join(dir, "gateway.log"), b.penstock, "serve", "--config", path); err != nil {
		return s, err
	}
	s.url = scheme + s.gateway.Address
	s.clients = []*http.Client{client(trust, false), client(trust, true)}
	return s, s.awaitEngines(ctx)
}

func (s *site) startSim(ctx context.Context, c enginetest.Config) (url string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	sim := enginetest.New(c)
	s.open.Go(func() { _ = sim.Serve(ctx, ln) })
	s.sims, s.names = append(s.sims, sim), append(s.names, c.Name)
	return "http://" + ln.Addr().String(), nil
}

// awaitEngines waits until all engines are ready and in the table.
func (s *site) awaitEngines(ctx context.Context) error {
	err := s.gateway.Await(ctx, child.ReadyLimit, "in front of all engines", func() bool {
		page, err := s.page()
		for _, name := range s.names {
			if err != nil || page[`penstock_engine_state{engine="`+name+`",state="ready"}`] != 1 || sum(page, "penstock_weight", `engine="`+name+`"`) == 0 {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("the gateway %w", err)
	}
	return nil
}

func (s *site) stop() {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	if s.gateway != nil {
		s.gateway.Stop(stopGrace)
	}
	s.shut()
	s.open.Wait()
}

// clientIdle is less than the time that a gateway waits for the first request
// on a connection: one that is closed as it is used loses a POST.
const clientIdle = 2 * time.Second

// client has no limits of its own and never repeats.
func client(trust *tls.Config, http2 bool) *http.Client {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1024, IdleConnTimeout: clientIdle, TLSClientConfig: trust.Clone(), Protocols: new(http.Protocols)}
	if tr.Protocols.SetHTTP1(!http2); http2 {
		tr.Protocols.SetHTTP2(true)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// writePair puts a certificate and its key into dir; clients trust it by what
// is returned.
func writePair(dir string) (*tls.Config, error) {
	authority, err := enginetest.NewAuthority()
	if err != nil {
		return nil, err
	}
	cert, key, err := authority.Issue(time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour), "127.0.0.1")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600); err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: authority.Pool()}, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)
}

// quiet waits until the gateway has booked everything and the connections of
// clients and to engines are gone.
func (s *site) quiet(ctx context.Context) error {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	for end := time.Now().Add(time.Minute); ; {
		page, err := s.page()
		busy := []string{}
		for series, v := range page {
			name, _, _ := strings.Cut(series, "{")
			switch name {
			case "penstock_requests_running", "penstock_inflight", "penstock_queue_waiting", "penstock_body_bytes", "penstock_client_connections":
				if v != 0 {
					busy = append(busy, fmt.Sprint(series, " ", v))
				}
			}
		}
		switch {
		case err == nil && len(busy) == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(end):
			return fmt.Errorf("the gateway is not quiet a minute after the last request: %v %v", busy, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
