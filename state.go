package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"penstock/engine"
	"penstock/proxy"
	"penstock/route"
)

// state keeps what should outlive this process in gateway.state_dir: a file
// for each thing, replaced as a whole, so that a crash leaves the one before.
type state struct {
	dir    string // "" = nothing is kept
	tables *route.Published
	fleet  *engine.Fleet
	ids    proxy.IDs
	log    *slog.Logger

	saved    uint64 // version of the table in the file
	savedIDs uint64 // changes of the ids in the file
	failed   bool   // the last write did, and was logged

	waiting []byte          // the file of ids, while engines of it have not been found
	found   map[string]bool // those that have

	orders sync.Mutex // one writing of the orders at a time
}

const (
	tableFile  = "table"
	idsFile    = "ids"
	saveEvery  = 30 * time.Second
	maxSaved   = 512 << 20
	stateFiles = 0o600
)

// loadTable reads the last table. One that cannot be used is no reason not to
// serve: the gateway starts as it would without.
func (s *state) loadTable() *route.Saved {
	if s.dir == "" {
		return nil
	}
	path := filepath.Join(s.dir, tableFile)
	saved, err := readTable(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		s.log.Warn("the saved table is not used, slots start from the weights", "file", path, "error", err.Error())
		return nil
	}
	s.log.Info("saved table", "file", path, "version", saved.Version, "classes", len(saved.Classes))
	return saved
}

func readTable(path string) (*route.Saved, error) {
	data, err := readState(path)
	if err != nil {
		return nil, err
	}
	return route.ReadSaved(data)
}

// loadIDs reads which engine holds what it made.
func (s *state) loadIDs() {
	if s.dir == "" {
		return
	}
	data, err := readState(filepath.Join(s.dir, idsFile))
	switch {
	case err == nil:
		s.waiting, s.found = data, make(map[string]bool)
		s.restoreIDs()
	case !errors.Is(err, fs.ErrNotExist):
		s.log.Warn("the saved ids cannot be read, engines are asked for what they hold", "error", err.Error())
	}
}

// restoreIDs takes in the saved ids of engines that are there now and were not
// before: some are found only later.
func (s *state) restoreIDs() {
	if s.waiting == nil {
		return
	}
	engines := s.fleet.Set()
	fresh := map[string]bool{}
	n, missing, err := s.ids.Restore(s.waiting, func(name, url string) *engine.Engine {
		e := engines.ByName(name)
		if e == nil || e.URL != url || s.found[name] {
			return nil
		}
		fresh[name] = true
		return e
	})
	if err != nil {
		s.log.Warn("the saved ids are not used, engines are asked for what they hold", "file", idsFile, "error", err.Error())
		missing = 0
	} else if n > 0 {
		s.log.Info("saved ids", "ids", n)
	}
	for name := range fresh {
		s.found[name] = true
	}
	if missing == len(s.found)-len(fresh) { // all that are missing had been there
		s.waiting = nil
	}
	s.savedIDs = s.ids.Changes()
}

func readState(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSaved {
		return nil, fmt.Errorf("larger than %d MiB", maxSaved>>20)
	}
	return os.ReadFile(path)
}

// Run saves every 30 s what has changed, and once more when ctx ends.
func (s *state) Run(ctx context.Context) error {
	if s.dir == "" {
		return nil
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	changed := s.fleet.Subscribe()
	for {
		select {
		case <-ctx.Done():
			s.save()
			return ctx.Err()
		case <-changed:
			s.restoreIDs()
		case <-tick.C:
			s.save()
		}
	}
}

func (s *state) save() {
	var failed error
	if t := s.tables.Load(); t.Version != s.saved && len(t.Classes) > 0 {
		if failed = replaceFile(filepath.Join(s.dir, tableFile), t); failed == nil {
			s.saved = t.Version
		}
	}
	if n := s.ids.Changes(); n != s.savedIDs && failed == nil {
		if failed = replaceFile(filepath.Join(s.dir, idsFile), s.ids); failed == nil {
			s.savedIDs = n
		}
	}
	if failed != nil && !s.failed {
		s.log.Error("gateway.state_dir cannot be written, a restart would start from the weights", "error", failed.Error())
	}
	s.failed = failed != nil
}

// replaceFile writes a new file beside path, brings it to the disk and puts it
// in its place.
func replaceFile(path string, from io.WriterTo) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // of what was not renamed
	_, err = from.WriteTo(f)
	err = errors.Join(err, f.Chmod(stateFiles), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
