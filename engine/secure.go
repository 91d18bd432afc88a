package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	// handshakeTime is what an engine has for the TLS handshake, after connecting.
	handshakeTime = 3 * time.Second
	maxCABytes    = 4 << 20
	// sessionsPerTrust is how many TLS sessions are kept to be resumed: a
	// connection that was idle for some seconds is closed, and the next need
	// not cost a full handshake.
	sessionsPerTrust = 256
)

// Trust is by what the certificate of an https engine is judged. Engines of
// equal Trust may share connections, others may not.
type Trust struct {
	CAFile     string // authorities beside the system's; "" = none
	ServerName string // that the certificate must be for; "" = the host of the URL
}

// Trust is the engine's.
func (c Config) Trust() Trust { return Trust{CAFile: c.CAFile, ServerName: c.TLSServerName} }

// HandshakeError is a TLS connection that could not be made although the
// engine's port was open.
type HandshakeError struct {
	Name string // that the certificate had to be for
	Err  error
}

func (e *HandshakeError) Error() string { return "TLS with " + e.Name + ": " + e.Err.Error() }
func (e *HandshakeError) Unwrap() error { return e.Err }

// Timeout makes an OpError around it tell.
func (e *HandshakeError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.Is(e.Err, context.DeadlineExceeded) || errors.As(e.Err, &t) && t.Timeout()
}

// Certificate reports whether it is the engine's certificate that was refused.
func (e *HandshakeError) Certificate() bool {
	var refused *tls.CertificateVerificationError
	return errors.As(e.Err, &refused) || errors.Is(e.Err, errAuthority)
}

// maxDetail bounds a text in which an engine's certificate has a say.
const maxDetail = 200

// tlsDetail is what a probe failed with, if it was TLS; nil if not.
func tlsDetail(err error) *string {
	handshake, ok := errors.AsType[*HandshakeError](err)
	if !ok {
		return nil
	}
	text := strings.TrimPrefix(handshake.Err.Error(), "tls: failed to verify certificate: ")
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
	if runes := []rune(text); len(runes) > maxDetail {
		text = string(runes[:maxDetail]) + "..."
	}
	return &text
}

var errAuthority = errors.New("no usable authority in ca_file")

// SecureDialer opens TLS connections to engines of one Trust. A failed
// handshake is an *net.OpError of Op "dial", as a refused connection is: in
// both cases no engine has seen anything of a request.
type SecureDialer struct {
	trust Trust
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	alpn  []string

	mu     sync.Mutex // guards what is below
	config *tls.Config
	file   os.FileInfo // of CAFile, as it was read
}

// NewSecureDialer returns a dialer that offers the protocols, over connections
// of dial.
func NewSecureDialer(t Trust, dial func(ctx context.Context, network, address string) (net.Conn, error), protocols ...string) *SecureDialer {
	return &SecureDialer{trust: t, dial: dial, alpn: protocols}
}

// Dial opens a connection and does the handshake.
func (d *SecureDialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	raw, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	name := d.trust.ServerName
	if name == "" {
		name = host
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := d.shake(ctx, raw, name)
	if err != nil {
		raw.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: raw.RemoteAddr(), Err: &HandshakeError{Name: name, Err: err}}
	}
	return conn, nil
}

func (d *SecureDialer) shake(ctx context.Context, raw net.Conn, name string) (*tls.Conn, error) {
	config, err := d.current()
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	config.ServerName = name
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil { // else it is the closing that the context caused
			err = ctx.Err()
		}
		return nil, err
	}
	return conn, nil
}

// current is the configuration by the CA file as it is now. A file that cannot
// be used any more leaves what was read before; one that never could is an error.
func (d *SecureDialer) current() (*tls.Config, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := d.changed()
	if err == nil && info == nil && d.config != nil {
		return d.config, nil
	}
	var pool *x509.CertPool
	if err == nil {
		pool, err = authorities(d.trust.CAFile)
	}
	switch {
	case err == nil:
		d.file = info
		d.config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, NextProtos: d.alpn,
			ClientSessionCache: tls.NewLRUClientSessionCache(sessionsPerTrust)}
	case d.config == nil:
		return nil, fmt.Errorf("%w %s: %w", errAuthority, d.trust.CAFile, err)
	}
	return d.config, nil
}

// changed is what the CA file is now, nil where it is what was read.
func (d *SecureDialer) changed() (os.FileInfo, error) {
	if d.trust.CAFile == "" {
		return nil, nil
	}
	info, err := os.Stat(d.trust.CAFile)
	if err != nil {
		return nil, err
	}
	if old := d.file; old != nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size() {
		return nil, nil
	}
	return info, nil
}

// authorities are the system's and those of the file; nil stands for the
// system's alone.
func authorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	return pool, readCA(path, pool)
}

// readCA adds the authorities of a file to pool.
func readCA(path string, pool *x509.CertPool) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCABytes))
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New("no certificate in it")
	}
	return err
}
