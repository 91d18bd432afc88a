package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/engine/enginetest"
	"penstock/route"
)

// tour is the show: it asks, and says what happened and why.
type tour struct {
	screen *screen
	fleet  *demoFleet
	client *demoClient
	over   context.Context // nothing new is begun after its end
	log    string          // where the gateway's log goes, in words
	last   string          // request id of the latest answer
	asked  atomic.Int64    // conversations of askMany
}

// tourOpenings begin conversations; each is long enough to fill blocks of an
// engine's prefix cache. Their keys are in slots of different engines.
var tourOpenings = [...]string{
	"Why does a penstock have a gate at its upper end, and what would happen to the turbine below it if there were none?",
	"A kettle holds two litres. How long does it take to boil, and which of the numbers that I left out matter most?",
	"Why does a queue at the post office grow so much faster than the number of people who come in? Give three reasons.",
}

const (
	tourWords = 12 // of an answer
	// readingTime passes between an answer and the next question where an
	// engine goes away: on a connection that was in use a moment ago the
	// gateway could not know that the request had not been worked on.
	readingTime = 300 * time.Millisecond
)

// play shows every step until the time is over. The error is never that of the
// end: what ctx ends is not a failure.
func (t *tour) play(ctx context.Context) error {
	t.introduce()
	talks := make([][]chatMessage, len(tourOpenings))
	t.heading("1. Three conversations (simulated engines write words without meaning)")
	for i, opening := range tourOpenings {
		talks[i] = []chatMessage{{"user", opening}}
		if _, ok := t.turn(ctx, &talks[i], ""); !ok {
			return nil
		}
	}
	t.heading("2. The first conversation goes on: same engine, which still has its KV cache")
	a, ok := t.turn(ctx, &talks[0], "And if the gate is stuck half open, who notices first?")
	if !ok {
		return nil
	}
	t.heading("3. That engine goes away")
	home := t.fleet.named(a.engine)
	if err := t.loseEngine(ctx, home, &talks[0]); err != nil || t.over.Err() != nil {
		return err
	}
	t.invite()
	return nil
}

func (t *tour) heading(text string) { t.screen.printf("\n%s\n", t.screen.bold(text)) }

func (t *tour) engine(name string) string {
	return t.screen.engine(slices.Index(t.fleet.world.engines(), name), name)
}

// introduce says what has been started.
func (t *tour) introduce() {
	s := t.screen
	w := t.fleet.world
	s.printf("%s\n\n", s.bold(fmt.Sprintf("Penstock: %d clusters, each with clients, a gateway and a simulated engine, in one process", len(w.clusters))))
	columns := []string{"CLUSTER", "CLIENTS ASK", "ENGINE", "CARRIES"}
	for _, c := range w.clusters {
		columns = append(columns, "TO "+c.name)
	}
	rows := newTable(s.w, columns...)
	for i, c := range w.clusters {
		cells := []string{c.name, fmt.Sprintf("%g/s", c.demand), c.engine.Name, fmt.Sprintf("%g/s", c.capacity)}
		for j := range w.clusters {
			rtt := ""
			if i != j {
				rtt = w.rtt(i, j).String()
			}
			cells = append(cells, rtt)
		}
		rows.row(cells...)
	}
	rows.print()
	s.printf("\nThis is %s's gateway:\nclients    http://%s/v1\noperators  http://%s\nlog        %s\n", w.clusters[excess].name,
		t.fleet.home().address(), t.fleet.home().adminAddress(), t.log)
}

// turn asks the next question of a conversation, none where it has only its
// opening, and shows the answer as it comes. False: it is over, or the request
// failed, which the tally has said.
func (t *tour) turn(ctx context.Context, talk *[]chatMessage, next string) (told, bool) {
	if t.over.Err() != nil {
		return told{}, false
	}
	if next != "" {
		*talk = append(*talk, chatMessage{"user", next})
	}
	s := t.screen
	s.printf("\n%s %s\n", t.label("you", -1), (*talk)[len(*talk)-1].Content)
	a, err := t.client.ask(ctx, question{talk: *talk, words: tourWords}, onlooker{
		begin: func(name string) { s.printf("%s ", t.label(name, slices.Index(t.fleet.world.engines(), name))) },
		word:  func(text string) { s.printf("%s", text) },
	})
	s.printf("\n")
	if err != nil {
		return a, false
	}
	*talk = append(*talk, chatMessage{"assistant", a.text})
	t.last = a.id
	t.explain(ctx, a)
	return a, true
}

// labelWidth is the column in which speech begins.
const labelWidth = 7

func (t *tour) label(name string, i int) string {
	padding := strings.Repeat(" ", max(labelWidth-len(name), 0))
	if i < 0 {
		return t.screen.dim(name) + padding
	}
	return t.screen.engine(i, name) + padding
}

// explain shows the answer's headers and what the gateway's record of the
// request says.
func (t *tour) explain(ctx context.Context, a told) {
	s, pad := t.screen, strings.Repeat(" ", labelWidth+1)
	say := func(text string) { s.printf("%s\n", s.dim(pad+text)) }
	say(fmt.Sprintf("x-penstock-engine: %s, x-penstock-affinity: %s, x-penstock-attempts: %d", a.engine, a.affinity, a.attempts))
	if r, err := t.record(ctx, a.id); err == nil {
		if len(r.Attempts) > 1 {
			first := r.Attempts[0]
			say(fmt.Sprintf("first tried on %s (%s): the request had not been sent, so it could move", first.Engine, cmp.Or(first.Cause, first.Outcome)))
		}
		say("why " + r.Engine + ": " + whyText(r.Why) + lookedAt(r))
	}
	say(fmt.Sprintf("first word after %d ms, %d words in %d ms; prompt of %d tokens, %d of them in the engine's cache",
		a.first.Milliseconds(), a.words, a.total.Milliseconds(), a.prompt, a.cached))
}

func (t *tour) record(ctx context.Context, id string) (r requestRecord, err error) {
	body, err := askAdmin(ctx, t.fleet.home().adminAddress(), requestPath(id))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(body, &r)
}

// whyText is a pick's rule in words.
func whyText(why string) string {
	switch why {
	case "slot":
		return "its key falls into a slot of this engine"
	case "remembered":
		return "this conversation was here before"
	case "previous":
		return "its slot has moved, but its cache is still here"
	case "placed":
		return "a new conversation, and its slot's own engine is busier than this alternate"
	case "alternate":
		return "its slot's own engine cannot take it; this is the alternate"
	case "spill_draw", "any_room":
		return "its slot's engines are full; this one has room"
	case "draw":
		return "no key; the lighter of two drawn by weight"
	case "random":
		return "drawn by weight"
	case "turn":
		return "it was its turn"
	case "fewest":
		return "it had the fewest in flight of all"
	case "lighter":
		return "the lighter of two drawn evenly"
	case "hashed":
		return "its key falls into a slot of this engine"
	case "next":
		return "its slot's own engine is at its bound; this is a next one"
	}
	return why
}

// lookedAt is what the pick saw on the engine that it chose.
func lookedAt(r requestRecord) string {
	for _, c := range r.Candidates {
		if c.Engine == r.Engine && c.InFlight != nil && c.Bound != nil {
			return fmt.Sprintf(" (%s in flight there, bound %s)", number(c.InFlight), number(c.Bound))
		}
	}
	return ""
}

// loseEngine takes the conversation's engine away in the middle of it and
// brings it back.
func (t *tour) loseEngine(ctx context.Context, home *runningEngine, talk *[]chatMessage) error {
	s := t.screen
	s.printf("\n%s stops listening, as if its process had ended. The conversation goes on.\n", t.engine(home.Name))
	home.sim.SetFaults(enginetest.Fault{Kind: enginetest.Refuse, P: 1})
	defer home.sim.SetFaults()
	gone := func() bool { return !listening(home.address) }
	if !awaitTrue(ctx, demoReady, gone) {
		return t.unless(ctx, "engine %s still listens", home.Name)
	}
	if !rest(t.over, readingTime) {
		return nil
	}
	first, ok := t.turn(ctx, talk, "Who repairs the gate, and what do they need for it?")
	if !ok {
		return nil
	}
	whole, asked := t.askMany(ctx, 12)
	if t.over.Err() != nil {
		return nil
	}
	s.printf("\n%d of %d other requests meanwhile: whole answers. To clients nothing has happened.\n", whole, asked)
	then, ok := t.turn(ctx, talk, "Thank you. Put all of it into one sentence.")
	if !ok {
		return nil
	}
	s.printf("\n%s\n", settledText(home.Name, first, then))
	home.sim.SetFaults()
	begin := time.Now()
	back := func() bool {
		g := t.fleet.home()
		return g.fleet.Set().ByName(home.Name).Ready() && t.fleet.weights(g)[route.ClassKey{Model: demoModel}][home.Name] > 0
	}
	if !awaitTrue(t.over, demoReady, back) {
		return t.unless(t.over, "engine %s is not in service again", home.Name)
	}
	s.printf("\n%s listens again and is in service after %.1f s.\n", t.engine(home.Name), time.Since(begin).Seconds())
	return nil
}

// settledText says where a conversation is that lost its engine, by two answers
// since: the table may have given its slot to another engine between them.
func settledText(out string, first, then told) string {
	switch {
	case first.engine != then.engine:
		return fmt.Sprintf("While %s is out the conversation's slot is one of %s's.", out, then.engine)
	case then.cached > 0:
		return fmt.Sprintf("On %s the conversation has a cache again.", then.engine)
	}
	return fmt.Sprintf("While %s is out %s is its engine.", out, then.engine)
}

// unless is a failure, except where ctx has ended.
func (t *tour) unless(ctx context.Context, format string, args ...any) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// askMany opens n conversations at once and counts the whole answers.
func (t *tour) askMany(ctx context.Context, n int) (whole, asked int) {
	var ok atomic.Int64
	var people sync.WaitGroup
	for range n {
		people.Go(func() {
			talk := []chatMessage{{"user", fmt.Sprintf("Conversation %d. Is anything wrong?", t.asked.Add(1))}}
			if _, err := t.client.ask(ctx, question{talk: talk, words: 6}, onlooker{}); err == nil {
				ok.Add(1)
			}
		})
	}
	people.Wait()
	return int(ok.Load()), n
}

// invite prints what the reader can do now. Every line works as it stands.
func (t *tour) invite() {
	s, own := t.screen, ownCommand()
	address, admin := t.fleet.home().address(), t.fleet.home().adminAddress()
	t.heading("4. Your turn, from another terminal")
	s.printf(`
curl -N http://%s/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"%s","stream":true,"messages":[{"role":"user","content":"hello"}]}'

%[3]s engines --admin %[4]s
%[3]s explain --table --admin %[4]s
%[3]s explain %[5]s --admin %[4]s
curl http://%[4]s/metrics

`, address, demoModel, own, admin, t.last)
}
