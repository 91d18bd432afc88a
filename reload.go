package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/config"
	"penstock/engine"
)

// reloads is the configuration in use and the count of changes to it.
type reloads struct {
	mu      sync.Mutex // one reload at a time; guards current
	current *config.File

	total  *prometheus.CounterVec
	good   prometheus.Gauge
	goodAt prometheus.Gauge
}

func (r *reloads) init(g *gateway, file *config.File) {
	r.current = file
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
// began with.
func (g *gateway) reload(force bool) error {
	r := &g.reloads
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := g.nextConfig(force)
	if err != nil {
		r.total.WithLabelValues("rejected").Inc()
		r.good.Set(0)
		g.log.Error("reload rejected", "file", g.path, "reason", err.Error())
		return err
	}
	for _, key := range r.current.NeedsRestart(next) {
		g.log.Warn("reload: this key needs a restart, the old value stays", "key", key)
	}
	if err := g.fleet.Apply(next.Engines); err != nil {
		return err
	}
	g.handler.Apply(next.Limits, string(next.Routing.HashKey))
	g.level.Set(next.Log.Level.Level())
	set := g.fleet.Set()
	g.handler.ForgetEngines(func(name string) bool { return set.ByName(name) != nil })
	for end := time.Now().Add(tableWithin); !g.loop.Follows(set) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	r.current = next
	r.total.WithLabelValues("ok").Inc()
	r.good.Set(1)
	r.goodAt.Set(float64(time.Now().Unix()))
	g.log.Info("reloaded", "file", g.path, "engines", len(next.Engines))
	return nil
}

// nextConfig loads and checks the file.
func (g *gateway) nextConfig(force bool) (*config.File, error) {
	if g.path == "" {
		return nil, fmt.Errorf("this gateway was started without a configuration file")
	}
	next, err := config.Load(g.path)
	if err != nil {
		return nil, err
	}
	if gone, share := capacityLost(g.reloads.current.Engines, next.Engines); share > 0.5 && !force {
		return nil, fmt.Errorf("the new file drops %s, %.0f %% of the capacity; to mean it, POST /-/reload?force=1", strings.Join(gone, ", "), share*100)
	}
	return next, nil
}

// capacityLost names the engines of old that next does not have and their
// share of old's capacity. An engine that is still listed is no loss, whatever
// its capacity says now: that was written by hand, a lost entry may not be.
func capacityLost(old, next []engine.Config) (gone []string, share float64) {
	kept := make(map[string]bool, len(next))
	for _, e := range next {
		kept[e.Name] = true
	}
	known := 0.0
	n := 0
	for _, e := range old {
		if e.Capacity != nil {
			known += *e.Capacity
			n++
		}
	}
	mean := 1.0
	if n > 0 && known > 0 {
		mean = known / float64(n)
	}
	lost, all := 0.0, 0.0
	for _, e := range old {
		c := mean
		if e.Capacity != nil {
			c = *e.Capacity
		}
		all += c
		if !kept[e.Name] {
			gone = append(gone, e.Name)
			lost += c
		}
	}
	if all == 0 {
		return gone, 0
	}
	return gone, lost / all
}
