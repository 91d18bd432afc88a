package nats

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"penstock/fleet"
)

const (
	reconnectWait = 500 * time.Millisecond
	// pingEvery, twice unanswered, is when a connection counts as dead: a way
	// that swallows everything is found before the lease ends.
	pingEvery  = time.Second
	connectFor = 2 * time.Second
)

// connectOptions are those of the configuration, with its files read.
func connectOptions(c *fleet.Config) ([]natsgo.Option, error) {
	options := []natsgo.Option{
		natsgo.Name("penstock"), natsgo.NoEcho(), natsgo.RetryOnFailedConnect(true), natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(reconnectWait), natsgo.ReconnectJitter(reconnectWait, reconnectWait), natsgo.Timeout(connectFor),
		// What is said while there is no connection is old when there is one again.
		natsgo.ReconnectBufSize(-1), natsgo.PingInterval(pingEvery), natsgo.MaxPingsOutstanding(2), natsgo.FlusherTimeout(connectFor),
	}
	if c.Credentials != "" {
		if _, err := os.Stat(c.Credentials); err != nil {
			return nil, fmt.Errorf("fleet.credentials: %w", err)
		}
		options = append(options, natsgo.UserCredentials(c.Credentials))
	}
	if c.NKey != "" {
		o, err := natsgo.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("fleet.nkey: %s: %w", c.NKey, err)
		}
		options = append(options, o)
	}
	if c.TLSCA == "" && c.TLSCert == "" {
		return options, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSCA != "" {
		pem, err := os.ReadFile(c.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("fleet.tls_ca: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("fleet.tls_ca: %s: no certificate in PEM", c.TLSCA)
		}
	}
	if c.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("fleet.tls_cert: %w", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	return append(options, natsgo.Secure(secure)), nil
}
