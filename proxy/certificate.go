package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// certificateEvery is how often the files are looked at. They are read, not
	// watched: a rename, a swapped link and a network file system all show that way.
	certificateEvery = 5 * time.Second
	maxPEMBytes      = 1 << 20
)

// Certificates is the certificate of the data port, with its chain and key.
// Run takes a new pair into use when the files have one. A pair that cannot be
// used leaves the last good one.
type Certificates struct {
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
	reloads *prometheus.CounterVec

	mu     sync.Mutex // guards what is below
	cert   string     // paths
	key    string
	used   [sha256.Size]byte // of the content in use
	seen   [sha256.Size]byte // of the content when last looked at
	judged bool              // seen has been refused in log and metrics
}

// CertificateFault is a pair of files that cannot be used.
type CertificateFault struct {
	Key  bool // it is the key's file that is to blame
	Want string
	Err  error // may be nil
}

func (f *CertificateFault) Error() string {
	if f.Err != nil {
		return "want " + f.Want + ": " + f.Err.Error()
	}
	return "want " + f.Want
}

func (f *CertificateFault) Unwrap() error { return f.Err }

// CheckCertificate says what is wrong with a pair of files, nil if nothing is.
// That it has expired is for the clients to judge: the gateway starts.
func CheckCertificate(cert, key string) *CertificateFault {
	_, _, fault := loadPair(cert, key)
	return fault
}

// NewCertificates loads the pair at cert and key.
func NewCertificates(cert, key string, log *slog.Logger, reg prometheus.Registerer) (*Certificates, error) {
	pair, sum, fault := loadPair(cert, key)
	if fault != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, fault)
	}
	c := &Certificates{log: log, cert: cert, key: key, used: sum}
	c.current.Store(pair)
	c.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_tls_certificate_reloads_total",
		Help: "New certificates found in the files of listen.tls_cert and tls_key, by result; a rejected one leaves the last good one in use."}, []string{"result"})
	for _, result := range []string{"ok", "rejected"} {
		c.reloads.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(c.reloads, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_tls_certificate_expiry_timestamp_seconds",
			Help: "When the certificate that clients are shown ends to be valid, in Unix time."},
			func() float64 { return float64(c.current.Load().Leaf.NotAfter.Unix()) }))
	}
	if now := time.Now(); !validAt(pair, now) {
		log.Warn("certificate is not valid now", "file", cert, "from", pair.Leaf.NotBefore, "to", pair.Leaf.NotAfter)
	}
	return c, nil
}

// get is tls.Config.GetCertificate.
func (c *Certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// Run looks at the files until ctx ends.
func (c *Certificates) Run(ctx context.Context) error {
	tick := time.NewTicker(certificateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			c.look(false)
		}
	}
}

// Use takes the pair at these paths into use, now or when it is fit: until
// then the one before stays, and the error says why.
func (c *Certificates) Use(cert, key string) error {
	c.mu.Lock()
	c.cert, c.key = cert, key
	c.mu.Unlock()
	return c.look(true)
}

// look reads the files. Two files do not change in one moment: a pair that
// does not fit is judged when it is still there the next time, or at once
// where somebody asks.
func (c *Certificates) look(now bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pair, sum, fault := loadPair(c.cert, c.key)
	var err error
	switch {
	case fault != nil:
		err = fault
	case sum == c.used:
		c.seen = sum
		return nil
	default:
		err = worseThan(c.current.Load(), pair, time.Now())
	}
	if err == nil {
		c.current.Store(pair)
		c.used, c.seen = sum, sum
		c.reloads.WithLabelValues("ok").Inc()
		c.log.Info("certificate reloaded", "file", c.cert, "names", pair.Leaf.DNSNames, "valid_to", pair.Leaf.NotAfter)
		return nil
	}
	if c.seen != sum {
		c.seen, c.judged = sum, false
		if !now {
			return err
		}
	}
	if !c.judged {
		c.judged = true
		c.reloads.WithLabelValues("rejected").Inc()
		c.log.Error("certificate rejected, the last one stays in use", "file", c.cert, "reason", err.Error(), "in_use_valid_to", c.current.Load().Leaf.NotAfter)
	}
	return err
}

// worseThan refuses a pair that is not valid now where the one in use is.
func worseThan(old, next *tls.Certificate, now time.Time) error {
	switch {
	case validAt(next, now) || !validAt(old, now):
		return nil
	case now.Before(next.Leaf.NotBefore):
		return fmt.Errorf("it is valid only from %s", next.Leaf.NotBefore.UTC().Format(time.RFC3339))
	default:
		return fmt.Errorf("it has expired at %s", next.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
}

func validAt(c *tls.Certificate, now time.Time) bool {
	return !now.Before(c.Leaf.NotBefore) && !now.After(c.Leaf.NotAfter)
}

// loadPair reads a certificate with its chain, and the key of the first. sum
// tells one content from another, also where it cannot be used.
func loadPair(certPath, keyPath string) (pair *tls.Certificate, sum [sha256.Size]byte, fault *CertificateFault) {
	cert, certErr := readPEM(certPath)
	key, keyErr := readPEM(keyPath)
	h := sha256.New()
	fmt.Fprintf(h, "%d %v %v ", len(cert), certErr, keyErr)
	h.Write(cert)
	h.Write(key)
	h.Sum(sum[:0])
	switch {
	case certErr != nil:
		return nil, sum, &CertificateFault{Want: "a readable PEM file", Err: certErr}
	case keyErr != nil:
		return nil, sum, &CertificateFault{Key: true, Want: "a readable PEM file", Err: keyErr}
	case !bytes.Contains(cert, []byte("-----BEGIN CERTIFICATE-----")):
		return nil, sum, &CertificateFault{Want: "a PEM file that begins with the certificate, its chain behind it"}
	case !bytes.Contains(key, []byte("PRIVATE KEY-----")):
		return nil, sum, &CertificateFault{Key: true, Want: "a PEM file with the private key, without a passphrase"}
	}
	p, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, sum, &CertificateFault{Key: true, Want: "the private key of the certificate in tls_cert", Err: err}
	}
	return &p, sum, nil
}

// readPEM reads a file of bounded size. Only a regular file is read: a pipe
// could block for ever.
func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, withoutPath(err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPEMBytes+1))
	if err == nil && len(text) > maxPEMBytes {
		err = errors.New("it is larger than 1 MiB")
	}
	return text, withoutPath(err)
}

// withoutPath drops the path from a file error: who shows it shows the path too.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
