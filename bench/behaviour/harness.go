package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"penstock/bench/child"
)

// target is one column: a proxy that is started with one policy, or one that is there.
type target struct {
	peer    *peer // nil: somebody else's, at base
	policy  *policy
	command string
	version string
	skip    string   // why it is not compared
	prefix  []string // of the command line
	env     []string

	base    string
	engines [2]string // addresses that base has behind it; empty: any
}

func (t *target) name() string {
	if t.peer == nil {
		return "given"
	}
	return t.peer.name
}

func (t *target) title() string {
	if t.peer == nil {
		return t.base
	}
	return t.peer.title
}

// cell is a row played behind a target.
type cell struct {
	row     *row
	target  *target
	seen    []observation // by repetition
	err     error         // the first one
	verdict verdict
	text    string
}

// harness plays cells.
type harness struct {
	work     string // directory for the proxies' files
	limits   limits
	repeat   int
	progress io.Writer

	mu   sync.Mutex // guards what is below, and the cells while they are played
	dirs int
	left int
}

// settleLimit is how long a proxy may take to serve after its start.
const settleLimit = 15 * time.Second

// atOnce is how many rows are played at the same time where they may be: most
// of their time is waiting.
const atOnce = 10

// play runs every repetition of every cell and judges them: rows that may be
// played together first, then the others one by one.
func (h *harness) play(ctx context.Context, cells []*cell) {
	type job struct {
		cell       *cell
		repetition int
	}
	var side, single []job
	for i := range h.repeat {
		for _, c := range cells {
			if c.target.skip != "" {
				continue
			}
			if c.row.pace == together && c.target.peer != nil { // there is one only of somebody else's
				side = append(side, job{c, i})
			} else {
				single = append(single, job{c, i})
			}
		}
	}
	h.left = len(side) + len(single)
	var running sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, j := range side {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			h.repetition(ctx, j.cell, j.repetition)
		})
	}
	running.Wait()
	for _, j := range single {
		h.repetition(ctx, j.cell, j.repetition)
	}
	for _, c := range cells {
		c.judge(h.limits)
	}
}

// repetition plays a cell once and keeps what was seen.
func (h *harness) repetition(ctx context.Context, c *cell, n int) {
	start := time.Now()
	o, err := h.once(ctx, c, n)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left--
	text := ""
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		text = "ERROR " + err.Error()
	} else {
		c.seen = append(c.seen, o)
		text = c.row.text(fold([]observation{o}))
	}
	fmt.Fprintf(h.progress, "%4d left  %5.1f s  %-9s %s: %s\n", h.left, time.Since(start).Seconds(), c.target.name(), c.row.name, text)
}

// judge gives the cell its text and its verdict.
func (c *cell) judge(l limits) {
	groups := fold(c.seen)
	c.text = c.row.text(groups)
	switch {
	case c.target.skip != "":
		c.verdict = isSkipped
	case c.err != nil:
		c.verdict = isError
		c.text = "could not be run: " + lastLine(c.err.Error())
	case len(groups) == 1 && groups[0].label == noOwnHeader:
		c.verdict = isSkipped
	case c.row.holds(groups, l):
		c.verdict = isRight
	case c.row.waits != "" && c.target.peer == penstock:
		c.verdict = isWaiting
	default:
		c.verdict = isWrong
	}
}

// once sets the stage, plays the row and clears it away.
func (h *harness) once(ctx context.Context, c *cell, n int) (observation, error) {
	if err := ctx.Err(); err != nil {
		return observation{}, errOutOfTime
	}
	s := &stage{harness: h, target: c.target}
	defer s.clear()
	t := &trial{ctx: ctx, http: newHTTP(), limits: h.limits, policy: c.target.policy,
		seed: mix(xxhash.Sum64String(c.row.name) + uint64(n))}
	defer t.http.CloseIdleConnections()
	var err error
	if s.pair, err = newPair(c.target.engines); err != nil {
		return observation{}, err
	}
	t.pair = s.pair
	if c.row.prepare != nil {
		c.row.prepare(s.pair)
	}
	if err := s.open(t); err != nil {
		return observation{}, err
	}
	t.restart = func() error {
		if err := s.pair.heal(); err != nil {
			return err
		}
		t.http.CloseIdleConnections()
		return s.open(t)
	}
	o, err := c.row.run(t)
	if ctx.Err() != nil {
		return o, errOutOfTime // what was seen last is the end of the run, not the proxy
	}
	return o, err
}

var errOutOfTime = errors.New("out of time")

// stage is what one repetition has running.
type stage struct {
	harness *harness
	target  *target
	pair    pair
	proxy   *child.Process // nil where it is somebody else's
}

// open starts the target's proxy afresh and waits until it serves both
// engines; somebody else's proxy is waited for as long as its own memory of
// the row before may last.
func (s *stage) open(t *trial) error {
	if s.target.peer == nil {
		t.base = s.target.base
		return t.settle(2 * time.Minute)
	}
	var err error
	for range 3 { // a free port may be taken by another before the proxy has it
		if s.proxy != nil {
			s.proxy.Stop(stopGrace)
			s.proxy = nil
		}
		if err = s.start(t); err == nil {
			return t.settle(settleLimit)
		}
		if t.ctx.Err() != nil {
			break
		}
	}
	return err
}

func (s *stage) start(t *trial) (err error) {
	set := setup{policy: s.target.policy.name, limits: s.harness.limits}
	if set.dir, err = s.harness.newDir(); err != nil {
		return err
	}
	for i, e := range s.pair {
		set.engines[i] = e.address
	}
	if s.proxy, err = s.target.start(t.ctx, &set); err == nil {
		t.base = "http://" + set.listen
	}
	return err
}

// start runs a proxy on free ports until it listens. The process is returned
// also where it does not, for the caller to end.
func (t *target) start(ctx context.Context, s *setup) (p *child.Process, err error) {
	if s.listen, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.spare, err = freeAddress(); err != nil {
		return nil, err
	}
	args, err := t.peer.write(*s)
	if err != nil {
		return nil, err
	}
	command := slices.Concat(t.prefix, []string{t.command}, args)
	if p, err = child.Start(s.dir, filepath.Join(s.dir, "output"), t.env, command[0], command[1:]...); err != nil {
		return nil, err
	}
	if err = awaitListener(ctx, p, s.listen, settleLimit); err != nil {
		err = fmt.Errorf("%s %w", t.peer.name, err)
	}
	return p, err
}

func (s *stage) clear() {
	if s.proxy != nil {
		s.proxy.Stop(stopGrace)
	}
	s.pair.close()
}

// newDir is a directory for one start of a proxy.
func (h *harness) newDir() (string, error) {
	h.mu.Lock()
	h.dirs++
	n := h.dirs
	h.mu.Unlock()
	dir := fmt.Sprintf("%s/%04d", h.work, n)
	return dir, os.Mkdir(dir, 0o700)
}
