package engine

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/engine/enginetest"
)

// An https engine is ready when its certificate is by an authority that is
// trusted and for the right name; else its state says what is wrong with it,
// and it comes back by itself when that is mended.
func TestHTTPSEngines(t *testing.T) {
	ours, err := enginetest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := enginetest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	caFile, otherFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other.pem")
	for path, text := range map[string][]byte{caFile: ours.PEM, otherFile: theirs.PEM} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := func(from, to time.Duration, protocols []string, names ...string) *tls.Config {
		t.Helper()
		cert, key, err := ours.Issue(time.Now().Add(from), time.Now().Add(to), names...)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: protocols}
	}
	good := func(names ...string) *tls.Config {
		return server(-time.Hour, time.Hour, []string{"h2", "http/1.1"}, names...)
	}
	old := good("old.example")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	rows := []struct {
		name   string
		server *tls.Config // nil: HTTP without TLS
		config Config
		state  State
		reason Reason
		detail string
	}{
		{"h2", good("h2.example"), Config{CAFile: caFile}, Ready, ReasonHealthy, ""},
		{"http1", server(-time.Hour, time.Hour, nil, "http1.example"), Config{CAFile: caFile}, Ready, ReasonHealthy, ""},
		{"h2only", server(-time.Hour, time.Hour, []string{"h2"}, "h2only.example"), Config{CAFile: caFile}, Ready, ReasonHealthy, ""},
		{"named", good("vllm.internal"), Config{CAFile: caFile, TLSServerName: "vllm.internal"}, Ready, ReasonHealthy, ""},
		{"unknown", good("unknown.example"), Config{}, Down, ReasonUntrusted, "x509: certificate signed by unknown authority"},
		{"other", good("other.example"), Config{CAFile: otherFile}, Down, ReasonUntrusted, "x509: certificate signed by unknown authority"},
		{"misnamed", good("another.example"), Config{CAFile: caFile}, Down, ReasonUntrusted, "x509: certificate is valid for another.example, not misnamed.example"},
		{"expired", server(-2*time.Hour, -time.Hour, nil, "expired.example"), Config{CAFile: caFile}, Down, ReasonUntrusted, "x509: certificate has expired or is not yet valid"},
		{"plain", nil, Config{CAFile: caFile}, Down, ReasonInsecure, "first record does not look like a TLS handshake"},
		{"old", old, Config{CAFile: caFile}, Down, ReasonInsecure, "protocol version not supported"},
		{"lost", good("lost.example"), Config{CAFile: filepath.Join(dir, "none.pem")}, Down, ReasonUntrusted, "no usable authority in ca_file"},
	}
	f, log := NewFleet(), new(logLines)
	at := map[string]string{} // where the names lead to
	var configs []Config
	for _, r := range rows {
		srv := httptest.NewUnstartedServer(script(plain("m")))
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		if r.server != nil {
			srv.Listener = tls.NewListener(srv.Listener, r.server)
		}
		srv.Start()
		defer srv.Close()
		address := r.name + ".example:443"
		at[address] = srv.Listener.Addr().String()
		c := r.config
		c.Name, c.URL = r.name, "https://"+address
		configs = append(configs, c)
	}
	if err := f.Apply(configs); err != nil {
		t.Fatal(err)
	}
	run(t, &Poller{Fleet: f, Log: log.logger(), Resolver: &net.Resolver{PreferGo: true, Dial: noNameServer}, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at[address])
	}})
	for _, r := range rows {
		e := f.Set().ByName(r.name)
		eventually(t, r.name+" to be "+r.state.String(), func() bool { return e.Status().State == r.state })
	}
	for _, r := range rows {
		e := f.Set().ByName(r.name)
		if s := e.Status(); s.State != r.state || s.Reason != r.reason || !strings.Contains(e.Detail(), r.detail) || (r.detail == "") != (e.Detail() == "") {
			t.Errorf("%s: %v, %v, %q; want %v, %v, %q", r.name, s.State, s.Reason, e.Detail(), r.state, r.reason, r.detail)
		}
		if r.state == Ready {
			if models, known := e.Serves(); !known || len(models) != 1 {
				t.Errorf("%s serves %v", r.name, models)
			}
		} else if lines := log.with(r.detail); len(lines) == 0 {
			t.Errorf("the log does not say %q", r.detail)
		}
	}
	// The authority is added to the file: no reload is needed.
	if err := os.WriteFile(otherFile+".new", append(theirs.PEM, ours.PEM...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(otherFile+".new", otherFile); err != nil {
		t.Fatal(err)
	}
	other := f.Set().ByName("other")
	eventually(t, "ready with the new authority", other.Ready)
	if other.Detail() != "" {
		t.Errorf("and still %q", other.Detail())
	}
	// And one that cannot be read any more leaves what was read.
	if err := os.Remove(otherFile); err != nil {
		t.Fatal(err)
	}
	before := other.polls.probes[healthy].Load()
	eventually(t, "probed again", func() bool { other.Suspect(); return other.polls.probes[healthy].Load() > before+1 })
	if !other.Ready() {
		t.Errorf("without its authority's file: %v, %q", other.Status(), other.Detail())
	}
}

func noNameServer(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }

// An engine that takes connections and says nothing is one that times out, as
// without TLS.
func TestSilentHTTPSEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNetwork(), NewFleet()
		if err := f.Apply([]Config{{Name: "e1", URL: "https://silent.example:443"}}); err != nil {
			t.Fatal(err)
		}
		silent := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		n.hosts["silent.example:443"] = silent.conns
		go func() {
			for {
				c, err := silent.Accept()
				if err != nil {
					return
				}
				go io.Copy(io.Discard, c)
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&Poller{Fleet: f, dial: n.dial}).Run(ctx) }()
		after(20 * time.Second)
		if s := f.Set().Engines[0].Status(); s.State != Down || s.Reason != ReasonTimeout {
			t.Errorf("%v, %v", s.State, s.Reason)
		}
		cancel()
		<-done
		silent.Close()
	})
}

// What a certificate says of itself is shown in one line of bounded length.
func TestDetailIsBounded(t *testing.T) {
	text := *tlsDetail(&net.OpError{Op: "dial", Err: &HandshakeError{Name: "h", Err: &tls.CertificateVerificationError{Err: errTextly(strings.Repeat("\x1b[31m\n", 100))}}})
	if len(text) > 4*maxDetail || strings.ContainsAny(text, "\x1b\n") {
		t.Errorf("%q", text)
	}
	if tlsDetail(net.ErrClosed) != nil {
		t.Error("another failure has a detail")
	}
}

type errTextly string

func (e errTextly) Error() string { return string(e) }
