package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/config"
	"penstock/engine"
)

// reloads is the configuration in use and the count of changes to it.
type reloads struct {
	mu      sync.Mutex   // one reload at a time; guards current
	started *config.File // what the listeners and the gateway's identity are of
	current *config.File

	total  *prometheus.CounterVec
	good   prometheus.Gauge
	goodAt prometheus.Gauge
}

func (r *reloads) init(g *gateway, file *config.File) {
	r.started, r.current = file, file
	r.total = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_config_reload_total", Help: "Reloads of the configuration file, by result."}, []string{"result"})
	r.good = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_config_last_reload_successful", Help: "1 if the file was in use after the last reload, else 0."})
	r.goodAt = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_config_last_reload_success_timestamp_seconds", Help: "When a configuration was last taken into use."})
	r.good.Set(1)
	r.goodAt.SetToCurrentTime()
	for _, result := range []string{"ok", "rejected"} {
		r.total.WithLabelValues(result)
	}
	g.registry.MustRegister(r.total, r.good, r.goodAt)
}

// tableWithin bounds how long a reload waits for the table that follows from
// it: a request after the reload has returned must find it.
const tableWithin = 2 * time.Second

// reload reads the file again and takes it into use as a whole, or not at
// all: the last good configuration stays. Requests under way keep what they
// began with. restart are the keys of which this process keeps the old value.
func (g *gateway) reload(force bool) (restart []string, err error) {
	r := &g.reloads
	r.mu.Lock()
	defer r.mu.Unlock()
	g.manager.reloading()
	defer g.manager.tell("READY=1")
	next, err := g.nextConfig(force)
	if err != nil {
		r.total.WithLabelValues("rejected").Inc()
		r.good.Set(0)
		g.log.Error("reload rejected", "file", g.path, "reason", err.Error())
		return nil, err
	}
	restart = r.started.NeedsRestart(next)
	for _, key := range restart {
		g.log.Warn("reload: this key needs a restart, the old value stays", "key", key)
	}
	if g.certs != nil && next.Listen.TLS() {
		// The file's check has found the pair usable. One that is not valid at
		// this time waits, which the log and the metrics say.
		_ = g.certs.Use(next.Listen.TLSCert, next.Listen.TLSKey)
	}
	g.handler.Apply(next.Limits, string(next.Routing.HashKey), next.Tenants, next.Aliases)
	g.level.Set(next.Log.Level.Level())
	g.member.SetPeriod(next.Routing.Period)
	g.loop.Apply(next.Routing.Policy, next.Routing.Period, next.Network)
	set := g.awaitTable()
	r.current = next
	r.total.WithLabelValues("ok").Inc()
	r.good.Set(1)
	r.goodAt.Set(float64(time.Now().Unix()))
	g.log.Info("reloaded", "file", g.path, "engines", len(set.Engines))
	return restart, nil
}

// awaitTable waits, within tableWithin, until requests find the engines of the
// fleet as they are now, and returns those.
func (g *gateway) awaitTable() *engine.Set {
	set := g.fleet.Set()
	for end := time.Now().Add(tableWithin); !g.loop.Follows(set) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return set
}

// nextConfig loads and checks the file, and takes its engines into use, the
// one part of it that can still be refused.
func (g *gateway) nextConfig(force bool) (*config.File, error) {
	if g.path == "" {
		return nil, fmt.Errorf("this gateway was started without a configuration file")
	}
	next, err := config.Load(g.path)
	if err != nil {
		return nil, err
	}
	err = g.discovery.Configure(next.Engines, next.Discovery, force)
	if loss, ok := errors.AsType[*engine.LossError](err); ok {
		return nil, fmt.Errorf("the new file %w; to mean it, POST /-/reload?force=1", loss)
	}
	return next, err
}
