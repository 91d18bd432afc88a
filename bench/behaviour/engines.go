package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"penstock/engine/enginetest"
)

// generations is the path whose requests count as deliveries.
const generations = "/v1/chat/completions"

// modelName is what both engines serve.
const modelName = "m"

// fakeEngine is one engine at a fixed address: it can be played, taken away,
// brought back, and made to reset every connection.
type fakeEngine struct {
	name    string
	address string

	mu      sync.Mutex // guards what is below
	play    enginetest.Play
	models  []string
	lives   []*enginetest.Script // the last one serves, unless it is down
	serving bool
	resets  *resetter
}

// newEngine starts a healthy engine, at a free address where none is given.
func newEngine(name, address string) (_ *fakeEngine, err error) {
	if address == "" {
		if address, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	e := &fakeEngine{name: name, address: address, play: answerAs(name), models: []string{modelName}}
	return e, e.up()
}

// up brings the engine into service at its address.
func (e *fakeEngine) up() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.serving {
		return nil
	}
	if e.resets != nil {
		e.resets.close()
		e.resets = nil
	}
	s, err := startScript(e.address, e.dispatch)
	if err != nil {
		return fmt.Errorf("engine %s: %w", e.name, err)
	}
	s.SetModels(e.models...)
	e.lives = append(e.lives, s)
	e.serving = true
	return nil
}

// startScript waits a little for a port that its last owner has just left.
func startScript(address string, play enginetest.Play) (s *enginetest.Script, err error) {
	for range 50 {
		if s, err = enginetest.StartScriptAt(address, play); err == nil {
			return s, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

// down closes every connection; new ones are refused.
func (e *fakeEngine) down() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.downLocked()
}

func (e *fakeEngine) downLocked() {
	if e.resets != nil {
		e.resets.close()
		e.resets = nil
	}
	if e.serving {
		e.serving = false
		e.lives[len(e.lives)-1].Close()
	}
}

// resetAll makes the engine accept connections and reset them at once.
func (e *fakeEngine) resetAll() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.downLocked()
	r, err := startResetter(e.address)
	if err != nil {
		return fmt.Errorf("engine %s: %w", e.name, err)
	}
	e.resets = r
	return nil
}

// resetConnections is how many connections were reset at once so far.
func (e *fakeEngine) resetConnections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resets == nil {
		return 0
	}
	return e.resets.count()
}

func (e *fakeEngine) setPlay(p enginetest.Play) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.play = p
}

func (e *fakeEngine) setModels(names ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.models = names
	if e.serving {
		e.lives[len(e.lives)-1].SetModels(names...)
	}
}

// dispatch plays generations; whatever else a proxy asks for does not exist,
// and a connection that speaks another protocol is closed.
func (e *fakeEngine) dispatch(x *enginetest.Exchange) {
	e.mu.Lock()
	play := e.play
	e.mu.Unlock()
	switch {
	case x.Request.Method == "PRI":
		x.Close()
	case x.Request.Method == http.MethodPost && x.Request.URL.Path == generations:
		play(x)
	default:
		x.Respond(http.StatusNotFound, "application/json", `{"detail":"Not Found"}`)
	}
}

// delivery is one generation request as it reached an engine.
type delivery struct {
	*enginetest.Exchange
	life *enginetest.Script
}

// ended is when its connection ended, zero while it has not.
func (d delivery) ended() time.Time {
	c := d.life.Connections()[d.Conn]
	if c.Ended == enginetest.Connected {
		return time.Time{}
	}
	return c.EndedAt
}

// deliveries lists the generation requests so far, in order of arrival.
func (e *fakeEngine) deliveries() (list []delivery) {
	e.mu.Lock()
	lives := e.lives
	e.mu.Unlock()
	for _, life := range lives {
		for _, x := range life.Exchanges() {
			if x.Request.Method == http.MethodPost && x.Request.URL.Path == generations {
				list = append(list, delivery{x, life})
			}
		}
	}
	return list
}

// pair is the two engines behind a proxy.
type pair [2]*fakeEngine

// newPair starts engines a and b.
func newPair(addresses [2]string) (p pair, err error) {
	for i, name := range []string{"a", "b"} {
		if p[i], err = newEngine(name, addresses[i]); err != nil {
			p.close()
			return p, err
		}
	}
	return p, nil
}

func (p pair) setPlay(play enginetest.Play) {
	for _, e := range p {
		e.setPlay(play)
	}
}

// heal brings both back to how they began.
func (p pair) heal() error {
	for _, e := range p {
		e.setPlay(answerAs(e.name))
		e.setModels(modelName)
		if err := e.up(); err != nil {
			return err
		}
	}
	return nil
}

func (p pair) close() {
	for _, e := range p {
		if e != nil {
			e.down()
		}
	}
}

// total is the number of deliveries to both.
func (p pair) total() int { return len(p[0].deliveries()) + len(p[1].deliveries()) }

// carrying lists the deliveries whose body has that text in it.
func (p pair) carrying(text string) (list []delivery) {
	for _, e := range p {
		for _, d := range e.deliveries() {
			if bytes.Contains(d.Body, []byte(text)) {
				list = append(list, d)
			}
		}
	}
	return list
}

// resetter accepts connections and resets them before it reads a byte.
type resetter struct {
	ln      net.Listener
	running sync.WaitGroup

	mu sync.Mutex
	n  int
}

func startResetter(address string) (*resetter, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	r := &resetter{ln: ln}
	r.running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed
			}
			r.mu.Lock()
			r.n++
			r.mu.Unlock()
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	})
	return r, nil
}

func (r *resetter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *resetter) close() {
	_ = r.ln.Close()
	r.running.Wait()
}
