package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/balancer"
	"penstock/engine"
	"penstock/fleet"
	"penstock/route"
	"penstock/selector"
)

// Views are what the admin pages show and the things they can ask for.
type Views struct {
	Fleet   *engine.Fleet
	Tables  *route.Published
	Records *selector.Records
	// Decision is what the table follows where this gateway plans, else nil;
	// Changes are what the last tables changed, the newest first.
	Decision func() *balancer.Decision
	Changes  func() []balancer.Change
	Metrics  prometheus.Gatherer
	Ready    func() bool // whether new requests should come here
	// Who is the fleet that this gateway is of, for which it may ask another.
	Who func(context.Context) fleet.Status
	// Reload takes the configuration file as it is now. It tells the keys that
	// have changed and need a restart, of which the old values stay.
	Reload func(force bool) (restart []string, err error)
	Drain  func() // begin to shut down
	Source string // the gateway's
	// Order gives an operator's order to an engine; nil if there is none of that name.
	Order func(name string, o engine.Order) *engine.Engine
}

// Handler serves the admin pages.
func Handler(v Views) http.Handler {
	mux := http.NewServeMux()
	v.scraped(mux)
	mux.HandleFunc("GET /engines", func(w http.ResponseWriter, _ *http.Request) {
		document(w, http.StatusOK, enginesPage(v.Fleet.Set(), time.Now()))
	})
	mux.HandleFunc("GET /table", func(w http.ResponseWriter, _ *http.Request) {
		document(w, http.StatusOK, tablePage(v.Tables.Load(), v.Decision(), v.Changes()))
	})
	mux.HandleFunc("GET /fleet", func(w http.ResponseWriter, r *http.Request) {
		document(w, http.StatusOK, fleetPage(v.Who(r.Context())))
	})
	mux.HandleFunc("GET /requests/{id}", func(w http.ResponseWriter, r *http.Request) {
		record := v.Records.Find(r.PathValue("id"))
		if record == nil {
			fault(w, http.StatusNotFound, "no record of this request id: the latest requests only are kept")
			return
		}
		page, t := recordPage(record, v.Source), v.Tables.Load()
		page.Planned = planFor(&page, t, v.Decision())
		page.Slot, page.Excluded = slotOf(record, t), excludedFrom(record.Class, t, v.Fleet.Set().Engines)
		document(w, http.StatusOK, page)
	})
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, r *http.Request) {
		restart, err := v.Reload(r.URL.Query().Get("force") == "1")
		if err != nil {
			fault(w, http.StatusUnprocessableEntity, err.Error())
			return
		}
		done := "reloaded\n"
		if len(restart) > 0 {
			done = "reloaded; these keys need a restart, their old values stay: " + strings.Join(restart, ", ") + "\n"
		}
		text(w, http.StatusOK, done)
	})
	mux.HandleFunc("POST /-/drain", func(w http.ResponseWriter, _ *http.Request) {
		v.Drain()
		text(w, http.StatusAccepted, "draining\n")
	})
	for path, order := range map[string]engine.Order{"cordon": engine.Cordon, "uncordon": engine.Serve, "drain": engine.Drain} {
		mux.HandleFunc("POST /engines/{name}/"+path, func(w http.ResponseWriter, r *http.Request) {
			e := v.Order(r.PathValue("name"), order)
			if e == nil {
				fault(w, http.StatusNotFound, "no engine of this name; GET /engines lists them")
				return
			}
			document(w, http.StatusOK, engineRowOf(e, time.Now()))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allow := otherMethods(mux, r); len(allow) > 0 {
			w.Header().Set("Allow", strings.Join(allow, ", "))
			fault(w, http.StatusMethodNotAllowed, "want "+strings.Join(allow, " or "))
			return
		}
		fault(w, http.StatusNotFound, "pages: /livez /readyz /metrics /engines /table /fleet /requests/{id}; POST /-/reload /-/drain /engines/{name}/cordon /engines/{name}/uncordon /engines/{name}/drain")
	})
	return local(http.NewCrossOriginProtection().Handler(mux))
}

// otherMethods are those by which the path of a request is a page.
func otherMethods(mux *http.ServeMux, r *http.Request) (allow []string) {
	asked := r.Clone(r.Context())
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		asked.Method = method
		if _, pattern := mux.Handler(asked); pattern != "/" && pattern != "" {
			allow = append(allow, method)
		}
	}
	return allow
}

// scraped adds the pages of scrapers and probes.
func (v Views) scraped(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !v.Ready() {
			text(w, http.StatusServiceUnavailable, "not ready\n")
			return
		}
		text(w, http.StatusOK, "ok\n")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(v.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce}))
}

// scrapesAtOnce bounds what /metrics costs whoever reaches its listener.
const scrapesAtOnce = 8

// MetricsHandler serves /metrics, /livez and /readyz and nothing else, to
// whoever asks: they change nothing and name engines and models only.
func MetricsHandler(v Views) http.Handler {
	mux := http.NewServeMux()
	v.scraped(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fault(w, http.StatusNotFound, "pages: /metrics /livez /readyz")
	})
	return mux
}

// NewMetricsServer is the HTTP server of admin.metrics_address.
func NewMetricsServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0)}
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
