package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"penstock/config"
	"penstock/engine"
	"penstock/proxy"
)

// keyFilesEvery is how often the files of engines' and tenants' keys are
// looked at. It is a look at the file's date and size, and works where a
// mounted secret is swapped under its name.
const keyFilesEvery = 5 * time.Second

// keyFiles follows the files that key_file names: a key that is changed in its
// file is in use without a reload. Only keys are taken over, nothing else of
// the configuration. Places are an owner and its path: a file may be named by
// several. One goroutine owns it.
type keyFiles struct {
	seen   map[string]fileSign // place -> what was read last
	failed map[string]string   // place -> why the file is not used; told once
}

// fileSign tells one content of a file from the next.
type fileSign struct {
	changed time.Time
	size    int64
	file    fs.FileInfo
}

func (s fileSign) same(o fileSign) bool {
	return s.file != nil && s.changed.Equal(o.changed) && s.size == o.size && os.SameFile(s.file, o.file)
}

// followKeys rereads keys until ctx ends.
func (g *gateway) followKeys(ctx context.Context) error {
	files := &keyFiles{seen: map[string]fileSign{}, failed: map[string]string{}}
	tick := time.NewTicker(keyFilesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			g.rereadKeys(files, time.Now())
		}
	}
}

// rereadKeys takes over the keys that have changed. One that cannot be used
// leaves the old one in use.
func (g *gateway) rereadKeys(files *keyFiles, now time.Time) {
	r := &g.reloads
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *r.current
	next.Engines, next.Tenants = slices.Clone(next.Engines), slices.Clone(next.Tenants)
	engines, tenants := 0, 0
	for _, e := range append(pointers(next.Engines), &next.Discovery.Engine) {
		engines += g.reread(files, "engine "+e.Name, e.Key.Path, now, func(key string) (bool, error) { return changeKey(e, key) })
	}
	if slices.ContainsFunc(next.Tenants, func(t proxy.TenantConfig) bool { return t.Key.Path != "" }) {
		taken := tenantKeys(next.Tenants)
		for _, t := range pointers(next.Tenants) {
			tenants += g.reread(files, "tenant "+t.Name, t.Key.Path, now, func(key string) (bool, error) { return changeTenantKey(t, key, taken) })
		}
	}
	if engines+tenants == 0 {
		return
	}
	if engines > 0 {
		if err := g.discovery.Configure(next.Engines, next.Discovery, false); err != nil {
			g.log.Error("keys are not taken over", "reason", err.Error())
			return
		}
		g.awaitTable()
	}
	g.handler.Apply(next.Limits, string(next.Routing.HashKey), next.Tenants, next.Aliases)
	r.current = &next
	g.log.Info("keys have changed", "engines", engines, "tenants", tenants)
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// changeKey gives an engine, or what engines found have in common, another key.
func changeKey(e *engine.Config, key string) (changed bool, err error) {
	old := e.Key.Text
	e.Key.Text = engine.Secret(key)
	faults := e.Validate()
	if i := slices.IndexFunc(faults, func(f engine.Fault) bool { return f.Key == "key_file" }); i >= 0 {
		e.Key.Text = old
		return false, errors.New("want " + faults[i].Want)
	}
	return e.Key.Text != old, nil
}

// changeTenantKey gives a tenant another key, if it is nobody's. taken is
// whose each key is.
func changeTenantKey(t *proxy.TenantConfig, key string, taken map[proxy.KeyHash]string) (changed bool, err error) {
	if err := proxy.CheckKey(key); err != nil {
		return false, err
	}
	hash := proxy.HashKey(key)
	if owner, ok := taken[hash]; ok {
		if owner != t.Name {
			return false, fmt.Errorf("want a key of its own: tenant %s has the same one", owner)
		}
		return false, nil
	}
	t.KeyHash, taken[hash] = []proxy.KeyHash{hash}, t.Name
	return true, nil
}

// reread hands the key in the owner's file to use, if the file is not the one
// that was read last for that owner, and returns 1 if that changed something.
func (g *gateway) reread(files *keyFiles, owner, path string, now time.Time, use func(key string) (changed bool, err error)) int {
	if path == "" {
		return 0
	}
	place := owner + " " + path
	sign, err := signOf(path)
	if err == nil && files.seen[place].same(sign) {
		return 0
	}
	delete(files.seen, place)
	changed := false
	if err == nil {
		var key string
		if key, err = config.ReadSecret(path); err == nil {
			changed, err = use(key)
		}
	}
	switch {
	case err == nil:
		delete(files.failed, place)
		// A file can change twice within a tick of its clock; one that has
		// just been written is read once more.
		if now.Sub(sign.changed) > time.Second {
			files.seen[place] = sign
		}
	case files.failed[place] != err.Error():
		files.failed[place] = err.Error()
		g.log.Warn("key file is not used, the key read before stays", "of", owner, "file", path, "reason", err.Error())
	}
	if changed {
		return 1
	}
	return 0
}

func signOf(path string) (fileSign, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileSign{}, err
	}
	return fileSign{changed: info.ModTime(), size: info.Size(), file: info}, nil
}

// tenantKeys is whose each key is.
func tenantKeys(tenants []proxy.TenantConfig) map[proxy.KeyHash]string {
	taken := make(map[proxy.KeyHash]string, len(tenants))
	for _, t := range tenants {
		for _, hash := range t.KeyHash {
			taken[hash] = t.Name
		}
	}
	return taken
}
