package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// rereadEvery is how often files are read whatever was heard of them:
	// network file systems and swapped directories tell nothing.
	rereadEvery = 5 * time.Second // +-20 %
	// A file that changes is read once nothing has been heard for quietFor, at
	// the latest after quietMost: who writes in place does it in steps.
	quietFor  = 100 * time.Millisecond
	quietMost = time.Second
	// secondLook is the time before a bad file is said to be bad.
	secondLook = 250 * time.Millisecond

	maxSDFiles = 1000 // of one pattern
)

// pattern is one entry of discovery.file_sd with the files that match it. It
// is not edited: a reading makes the next one.
type pattern struct {
	source
	path     string // from the root or the working directory
	template Config
	files    []*sdFile // by path
	failing  string    // why the directory cannot be read; "" if it can
	reported string    // what the log has of failing
}

// sdFile is a file with its last good content.
type sdFile struct {
	path     string
	good     []byte
	found    []Config
	failing  string // what is wrong with the content since; "" if nothing
	reported string // what the log has of failing
}

func (f *sdFile) foundBy() string { return kindFileSD + " " + f.path }

// covers reports whether a path is one of the pattern's.
func (p *pattern) covers(path string) bool {
	ok, err := filepath.Match(filepath.Base(p.path), filepath.Base(path))
	return err == nil && ok && filepath.Dir(p.path) == filepath.Dir(path)
}

func (p *pattern) engines() (n int) {
	for _, f := range p.files {
		n += len(f.found)
	}
	return n
}

func (p *pattern) fails() bool {
	return p.failing != "" || slices.ContainsFunc(p.files, func(f *sdFile) bool { return f.failing != "" })
}

// readAll reads the files of every pattern, with what they said before.
func (d *Discovery) readAll(before []*pattern, c DiscoveryConfig) []*pattern {
	next := d.patternsOf(c)
	for _, p := range next {
		prev := &pattern{}
		if j := slices.IndexFunc(before, func(b *pattern) bool { return b.entry == p.entry }); j >= 0 {
			prev = before[j]
		}
		p.read(prev)
	}
	return next
}

// patternsOf are the patterns of a configuration, not read yet.
func (d *Discovery) patternsOf(c DiscoveryConfig) []*pattern {
	all := make([]*pattern, len(c.FileSD))
	for i, entry := range c.FileSD {
		all[i] = &pattern{source: source{kindFileSD, entry}, path: entry, template: d.template(c)}
		if !filepath.IsAbs(entry) {
			all[i].path = filepath.Join(d.dir, entry)
		}
	}
	return all
}

// read lists and reads the files. A directory that cannot be listed, and a
// file that cannot be used, leave what was there before.
func (p *pattern) read(prev *pattern) {
	p.reported = prev.reported
	paths, err := p.paths()
	if err != nil {
		p.failing, p.files = filepath.Dir(p.path)+": "+withoutPath(err).Error(), prev.files
		return
	}
	for _, path := range paths {
		was := &sdFile{path: path}
		if i := slices.IndexFunc(prev.files, func(f *sdFile) bool { return f.path == path }); i >= 0 {
			was = prev.files[i]
		}
		text, err := readSD(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since it was listed, or its link leads nowhere
		}
		p.files = append(p.files, was.next(text, err, p.template, reflect.DeepEqual(p.template, prev.template)))
	}
}

// next is the file after a reading.
func (f *sdFile) next(text []byte, err error, template Config, sameTemplate bool) *sdFile {
	n := &sdFile{path: f.path, good: f.good, found: f.found, reported: f.reported}
	template.foundBy = f.foundBy()
	if !sameTemplate && f.good != nil {
		if found, faults := parseFileSD(f.path, f.good, template); faults == nil {
			n.found = found
		}
	}
	switch {
	case err != nil:
		n.failing = f.path + ": " + err.Error()
	case f.good != nil && bytes.Equal(text, f.good) && sameTemplate:
	default:
		found, faults := parseFileSD(f.path, text, template)
		if faults != nil {
			n.failing = faultsText(faults)
			break
		}
		n.good, n.found = text, found
	}
	return n
}

// faultsText is a bounded line about the faults of one file.
func faultsText(faults []FileFault) string {
	const shown = 3
	var parts []string
	for _, f := range faults[:min(shown, len(faults))] {
		parts = append(parts, f.String())
	}
	if more := len(faults) - shown; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// paths lists the files that match, sorted. That there is none is an answer;
// that the directory is not there is not: file systems get lost.
func (p *pattern) paths() (paths []string, err error) {
	dir, last := filepath.Split(p.path)
	if dir == "" {
		dir = "."
	}
	if !strings.ContainsAny(last, "*?[\\") {
		if _, err := os.Stat(p.path); errors.Is(err, fs.ErrNotExist) {
			_, err := os.Stat(dir)
			return nil, err
		}
		return []string{p.path}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ok, _ := filepath.Match(last, e.Name()); ok && !e.IsDir() {
			paths = append(paths, filepath.Join(filepath.Dir(p.path), e.Name()))
		}
	}
	if len(paths) > maxSDFiles {
		return nil, fmt.Errorf("%d files match: want at most %d", len(paths), maxSDFiles)
	}
	return paths, nil
}

// readSD reads a file of bounded size. Only a regular file is read: a pipe
// could block for ever.
func readSD(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("want a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSDFile+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if len(text) > maxSDFile {
		return nil, errors.New("want a file of at most 4 MiB")
	}
	return text, nil
}

func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// reload reads the files and follows them. What is wrong is said, and counted,
// only where say is set; unsaid reports that there is something to say.
func (d *Discovery) reload(say bool) (unsaid bool) {
	d.reading.Lock()
	defer d.reading.Unlock()
	d.mu.Lock()
	before, c := d.use.patterns, d.use.config
	d.mu.Unlock()
	next := d.readAll(before, c)

	d.mu.Lock()
	defer d.mu.Unlock()
	d.use.patterns = next
	for i, p := range next {
		count := d.counts[p.source]
		if !p.fails() {
			if len(p.files) == 0 && (count.at.IsZero() || len(before[i].files) > 0) {
				d.log.Warn("discovery finds no file", kindFileSD, p.entry)
			}
			count.at = time.Now()
		}
		unsaid = d.tell(p.source, p.failing, &p.reported, say) || unsaid
		for _, f := range p.files {
			unsaid = d.tell(p.source, f.failing, &f.reported, say) || unsaid
		}
	}
	d.refreshLocked()
	return unsaid
}

// tell logs and counts a failure that is new, once, and its end.
func (d *Discovery) tell(s source, failing string, reported *string, say bool) (unsaid bool) {
	switch {
	case failing == *reported:
		return false
	case failing == "":
		d.log.Info("discovery works again", kindFileSD, s.entry)
	case !say:
		return true
	default:
		d.counts[s].failures++
		d.log.Warn("discovery: a file cannot be used, its last good content stays", kindFileSD, s.entry, "reason", failing)
	}
	*reported = failing
	return false
}

// watchFiles reads the files when something happens in their directories, and
// every rereadEvery, until ctx ends.
func (d *Discovery) watchFiles(ctx context.Context) {
	var w *fsnotify.Watcher
	var events chan fsnotify.Event
	var failed chan error
	deaf := false
	for {
		dirs := d.directories()
		if w == nil && len(dirs) > 0 && !deaf {
			var err error
			if w, err = fsnotify.NewWatcher(); err != nil {
				deaf = true
				d.log.Warn("discovery: files are not watched, only read now and then", "every", rereadEvery.String(), "error", err)
			} else {
				defer w.Close()
				events, failed = w.Events, w.Errors
			}
		}
		if w != nil {
			follow(w, dirs)
		}
		// After the watch stands, so that nothing happens unseen in between.
		if len(dirs) > 0 && d.reload(false) {
			if !pause(ctx, secondLook, nil) {
				return
			}
			d.reload(true)
		}
		if !d.awaitFiles(ctx, events, failed, len(dirs) > 0) {
			return
		}
	}
}

// directories are those of the patterns.
func (d *Discovery) directories() (dirs []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.use.patterns {
		if dir := filepath.Dir(p.path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// follow watches dirs and nothing else. One that cannot be watched, or is not
// there yet, is tried again at the next reading.
func follow(w *fsnotify.Watcher, dirs []string) {
	watched := w.WatchList()
	for _, dir := range watched {
		if !slices.Contains(dirs, dir) {
			_ = w.Remove(dir)
		}
	}
	for _, dir := range dirs {
		if !slices.Contains(watched, dir) {
			_ = w.Add(dir)
		}
	}
}

// awaitFiles waits for a reason to read the files; false when ctx is done. The
// whole directory counts: a ConfigMap changes by a link beside the files.
func (d *Discovery) awaitFiles(ctx context.Context, events <-chan fsnotify.Event, failed <-chan error, any bool) bool {
	var poll <-chan time.Time
	if any {
		poll = time.After(spread(rereadEvery, rand.Float64()))
	}
	var quiet, most <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-poll:
			return true
		case <-d.reread:
			return true
		case <-quiet:
			return true
		case <-most:
			return true
		case <-failed: // events were lost
			return true
		case e := <-events:
			if e.Op == fsnotify.Chmod {
				continue
			}
			quiet = time.After(quietFor)
			if most == nil {
				most = time.After(quietMost)
			}
		}
	}
}
