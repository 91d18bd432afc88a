package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"penstock/engine/enginetest"
)

// keyKind is how a client names its conversation.
type keyKind uint8

const (
	noKey keyKind = iota
	userField
	cacheKeyField
	sessionHeader
	ownHeader // of the proxy
)

// talk is one way in which people use two engines.
type talk struct {
	name          string
	key           keyKind
	conversations int
	system        bool // all open with the same long system prompt
	parallel      bool
}

var talks = []talk{
	{name: "no key", key: noKey, conversations: 8, system: true},
	{name: "no key, 24 in parallel", key: noKey, conversations: 24, system: true, parallel: true},
	{name: "no key, no system prompt", key: noKey, conversations: 8},
	{name: "`user`", key: userField, conversations: 8, system: true},
	{name: "`prompt_cache_key`", key: cacheKeyField, conversations: 8, system: true},
	{name: "X-Session-Id", key: sessionHeader, conversations: 8, system: true},
	{name: "own header", key: ownHeader, conversations: 8, system: true},
}

const (
	turns = 10
	// A perfect hash of 8 conversations puts 0.64 of them on the busier of two
	// engines on average; above this the engines are not shared.
	busiestRight = 0.75
	stayRight    = 0.95
)

// affinities is the second table: whether conversations stay, and on how many engines.
func affinities() []*row {
	var rows []*row
	for _, k := range talks {
		rows = append(rows, &row{
			name: k.name, wanted: fmt.Sprintf("1.0 / <= %.2f", busiestRight),
			run: k.run,
			say: func(f folded) string {
				if f.label != "" {
					return f.label
				}
				return fmt.Sprintf("%s / %s", f.numbers[0].digits(2), f.numbers[1].digits(2))
			},
			right: func(f folded, _ limits) bool {
				return f.label == "" && f.numbers[0].low >= stayRight && f.numbers[1].mid <= busiestRight
			},
		})
	}
	return rows
}

// noOwnHeader is the label of a row that a proxy has nothing for.
const noOwnHeader = "has none"

// run plays the conversations. Numbers: share of turns on the engine of the
// turn before, share of all requests on the busier engine.
func (k talk) run(t *trial) (observation, error) {
	if k.key == ownHeader && t.policy.header == "" {
		return observation{Label: noOwnHeader}, nil
	}
	for _, e := range t.pair {
		e.setPlay(func(x *enginetest.Exchange) {
			if k.parallel {
				x.Pause(20 * time.Millisecond) // so that they overlap
			}
			answerAs(e.name)(x)
		})
	}
	people := make([]*person, k.conversations)
	for i := range people {
		people[i] = k.begin(t, i)
	}
	if k.parallel {
		var talking sync.WaitGroup
		for _, p := range people {
			talking.Go(func() {
				for range turns {
					p.turn(t)
				}
			})
		}
		talking.Wait()
	} else {
		// In an order that changes: with a fixed one, turns would be all that a proxy has to take by turns.
		order := rand.New(rand.NewPCG(t.seed, 1))
		for range turns {
			for _, i := range order.Perm(len(people)) {
				people[i].turn(t)
			}
		}
	}
	return countTurns(people)
}

// person is one conversation.
type person struct {
	messages []message
	fields   map[string]any // of the body, beside model and messages
	headers  []string
	engines  []string // by turn
	failed   string
	seed     uint64
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (k talk) begin(t *trial, i int) *person {
	p := &person{fields: map[string]any{}, seed: mix(t.seed + uint64(i)*7919)}
	if k.system {
		p.messages = append(p.messages, message{"system", systemPrompt})
	}
	id := fmt.Sprintf("conversation-%016x", p.seed)
	switch k.key {
	case userField:
		p.fields["user"] = id
	case cacheKeyField:
		p.fields["prompt_cache_key"] = id
	case sessionHeader:
		p.headers = []string{"X-Session-Id", id}
	case ownHeader:
		p.headers = []string{t.policy.header, id}
	}
	return p
}

// systemPrompt is what all conversations of one product begin with.
const systemPrompt = "You are the assistant of a shop for garden tools. Answer briefly, in the language of the question, and never promise a date of delivery. " +
	"Prices are in euros with tax. If you do not know an answer, say so and give the number of the help desk."

// turn sends the conversation so far with a new question, and adds the answer.
func (p *person) turn(t *trial) {
	question := fmt.Sprintf("%016x what about that?", mix(p.seed+uint64(len(p.messages))))
	if len(p.engines) == 0 {
		question += "\n\n" + strings.Repeat(question+" ", 40) // people open with a text that they paste
	}
	p.messages = append(p.messages, message{"user", question})
	body := map[string]any{"model": modelName, "messages": p.messages}
	for name, value := range p.fields {
		body[name] = value
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings only
	}
	a := t.post(text, patience, p.headers...)
	var doc struct {
		Choices []struct{ Message message }
	}
	if !a.ok() || json.Unmarshal(a.body, &doc) != nil || len(doc.Choices) == 0 {
		p.failed = a.outcome()
		return
	}
	engine := doc.Choices[0].Message.Content
	p.engines = append(p.engines, engine)
	p.messages = append(p.messages, message{"assistant", engine})
}

func countTurns(people []*person) (observation, error) {
	stayed, moves, byEngine, total := 0, 0, map[string]int{}, 0
	for _, p := range people {
		if p.failed != "" {
			return observation{}, fmt.Errorf("a turn was answered with %s", p.failed)
		}
		for i, e := range p.engines {
			byEngine[e]++
			total++
			if i > 0 && e == p.engines[i-1] {
				stayed++
			}
			if i > 0 {
				moves++
			}
		}
	}
	most := 0
	for _, n := range byEngine {
		most = max(most, n)
	}
	return observation{"", []float64{float64(stayed) / float64(moves), float64(most) / float64(total)}}, nil
}
