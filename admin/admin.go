package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// Views are what the admin pages show and the two things they can ask for.
type Views struct {
	Fleet   *engine.Fleet
	Tables  *route.Published
	Records *selector.Records
	Metrics prometheus.Gatherer
	Ready   func() bool            // whether new requests should come here
	Reload  func(force bool) error // take the configuration file as it is now
	Drain   func()                 // begin to shut down
	Source  string                 // the gateway's
}

// Handler serves the admin pages.
func Handler(v Views) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !v.Ready() {
			text(w, http.StatusServiceUnavailable, "not ready\n")
			return
		}
		text(w, http.StatusOK, "ok\n")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(v.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /engines", func(w http.ResponseWriter, _ *http.Request) {
		document(w, http.StatusOK, enginesPage(v.Fleet.Set(), time.Now()))
	})
	mux.HandleFunc("GET /table", func(w http.ResponseWriter, _ *http.Request) {
		document(w, http.StatusOK, tablePage(v.Tables.Load()))
	})
	mux.HandleFunc("GET /requests/{id}", func(w http.ResponseWriter, r *http.Request) {
		record := v.Records.Find(r.PathValue("id"))
		if record == nil {
			fault(w, http.StatusNotFound, "no record of this request id: the latest requests only are kept")
			return
		}
		document(w, http.StatusOK, recordPage(record, v.Source))
	})
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, r *http.Request) {
		if err := v.Reload(r.URL.Query().Get("force") == "1"); err != nil {
			fault(w, http.StatusUnprocessableEntity, err.Error())
			return
		}
		text(w, http.StatusOK, "reloaded\n")
	})
	mux.HandleFunc("POST /-/drain", func(w http.ResponseWriter, _ *http.Request) {
		v.Drain()
		text(w, http.StatusAccepted, "draining\n")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fault(w, http.StatusNotFound, "pages: /livez /readyz /metrics /engines /table /requests/{id}; POST /-/reload /-/drain")
	})
	return local(http.NewCrossOriginProtection().Handler(mux))
}

// local refuses requests whose Host is a name other than localhost: a page in
// an operator's browser could otherwise reach the listener by a name of its
// own that resolves to loopback (DNS rebinding).
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" && host != "" {
			fault(w, http.StatusForbidden, "ask by address, or as localhost")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// NewServer is the HTTP server of the admin listener.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute}
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, s)
}

func document(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		fault(w, http.StatusInternalServerError, fmt.Sprintf("page cannot be written as JSON: %v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

func fault(w http.ResponseWriter, status int, message string) {
	document(w, status, map[string]any{"error": map[string]any{"message": message}})
}
