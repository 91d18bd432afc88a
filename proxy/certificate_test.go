package proxy

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"penstock/engine/enginetest"
)

// secretVolume is a directory as Kubernetes mounts a secret: tls.crt and
// tls.key are links into ..data, itself a link to one of the versions.
type secretVolume struct {
	t         *testing.T
	dir       string
	authority *enginetest.Authority
}

func newSecretVolume(t *testing.T) *secretVolume {
	t.Helper()
	a, err := enginetest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	v := &secretVolume{t: t, dir: t.TempDir(), authority: a}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func (v *secretVolume) paths() (cert, key string) {
	return filepath.Join(v.dir, "tls.crt"), filepath.Join(v.dir, "tls.key")
}

// issue makes a pair that is valid between two times from now.
func (v *secretVolume) issue(from, to time.Duration) (p pair) {
	v.t.Helper()
	var err error
	if p.cert, p.key, err = v.authority.Issue(time.Now().Add(from), time.Now().Add(to), "localhost"); err != nil {
		v.t.Fatal(err)
	}
	return p
}

type pair struct{ cert, key []byte }

// mount makes a version of the secret and swaps the link to it.
func (v *secretVolume) mount(version string, p pair) {
	v.t.Helper()
	at := filepath.Join(v.dir, version)
	for _, err := range []error{
		os.Mkdir(at, 0o700),
		os.WriteFile(filepath.Join(at, "tls.crt"), p.cert, 0o600),
		os.WriteFile(filepath.Join(at, "tls.key"), p.key, 0o600),
		os.Symlink(version, filepath.Join(v.dir, "..new")),
		os.Rename(filepath.Join(v.dir, "..new"), filepath.Join(v.dir, "..data")),
	} {
		if err != nil {
			v.t.Fatal(err)
		}
	}
}

// shown is the serial number of the certificate in use.
func shown(c *Certificates) string { return c.current.Load().Leaf.SerialNumber.String() }

// sharedLog is a log that is read while it is written.
type sharedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestCertificateFilesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newSecretVolume(t)
		v.mount("v1", v.issue(-time.Hour, time.Hour))
		var log sharedLog
		cert, key := v.paths()
		c, err := NewCertificates(cert, key, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		ticks := func(n int) {
			time.Sleep(time.Duration(n) * certificateEvery)
			synctest.Wait()
		}
		counted := func(ok, rejected float64) {
			t.Helper()
			if a, b := gaugeOf(t, c.reloads.WithLabelValues("ok")), gaugeOf(t, c.reloads.WithLabelValues("rejected")); a != ok || b != rejected {
				t.Errorf("%v ok, %v rejected; want %v, %v", a, b, ok, rejected)
			}
		}
		first := shown(c)
		ticks(3)
		counted(0, 0)

		v.mount("v2", v.issue(-time.Hour, time.Hour))
		ticks(1)
		second := shown(c)
		if second == first {
			t.Error("the swapped link has no effect")
		}
		counted(1, 0)

		// Two files that are written one after the other: no fault for the moment between.
		next := v.issue(-time.Hour, time.Hour)
		if err := os.WriteFile(cert, next.cert, 0o600); err != nil {
			t.Fatal(err)
		}
		ticks(1)
		if err := os.WriteFile(key, next.key, 0o600); err != nil {
			t.Fatal(err)
		}
		ticks(1)
		third := shown(c)
		if third == second {
			t.Error("the pair written in two steps is not in use")
		}
		counted(2, 0)

		// A pair that stays wrong is refused once.
		v.mount("v3", pair{cert: next.cert, key: v.issue(-time.Hour, time.Hour).key})
		ticks(5)
		counted(2, 1)
		if !strings.Contains(log.String(), "certificate rejected") {
			t.Error("nothing in the log")
		}
		// And so is one that is gone.
		if err := os.RemoveAll(filepath.Join(v.dir, "v3")); err != nil {
			t.Fatal(err)
		}
		ticks(5)
		counted(2, 2)
		if shown(c) != third {
			t.Error("the last good certificate is not in use")
		}

		// One that will be valid in a minute waits for it.
		v.mount("v4", v.issue(time.Minute, time.Hour))
		ticks(2)
		if shown(c) != third {
			t.Error("a certificate that is not valid yet is in use")
		}
		counted(2, 3)
		time.Sleep(time.Minute)
		ticks(1)
		if shown(c) == third {
			t.Error("the certificate that has become valid is not in use")
		}
		counted(3, 3)

		// With none left that is valid, the newer one may be the one that is watched for.
		time.Sleep(2 * time.Hour)
		fourth := shown(c)
		v.mount("v5", v.issue(-2*time.Hour, -time.Hour))
		ticks(1)
		if shown(c) == fourth {
			t.Error("of two expired certificates the new one is not taken")
		}
	})
}

// valueOf is what a counter counts.
func gaugeOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestPairsThatCannotBeUsed(t *testing.T) {
	v := newSecretVolume(t)
	p, other := v.issue(-time.Hour, time.Hour), v.issue(-time.Hour, time.Hour)
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	goodCert, goodKey := file("cert", p.cert), file("key", p.key)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, cert, key string
		blamesKey       bool
		want            string
	}{
		{"certificate missing", filepath.Join(dir, "none"), goodKey, false, "no such file"},
		{"key missing", goodCert, filepath.Join(dir, "none"), true, "no such file"},
		{"a directory", dir, goodKey, false, "not a regular file"},
		{"a pipe", goodCert, pipe, true, "not a regular file"},
		{"empty", file("empty", nil), goodKey, false, "begins with the certificate"},
		{"swapped", goodKey, goodCert, false, "begins with the certificate"},
		{"no key in it", goodCert, goodCert, true, "private key"},
		{"of another certificate", file("other", other.cert), goodKey, true, "private key of the certificate"},
		{"broken", file("broken", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")), goodKey, true, "x509"},
		{"too large", file("large", bytes.Repeat([]byte("x"), maxPEMBytes+1)), goodKey, false, "larger than 1 MiB"},
	} {
		fault := CheckCertificate(c.cert, c.key)
		if fault == nil || fault.Key != c.blamesKey || !strings.Contains(fault.Error(), c.want) {
			t.Errorf("%s: %v, of the key: %v", c.name, fault, fault != nil && fault.Key)
		}
	}
	if fault := CheckCertificate(goodCert, goodKey); fault != nil {
		t.Errorf("a good pair: %v", fault)
	}
}
