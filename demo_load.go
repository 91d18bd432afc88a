package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// The load is open: requests come when they come, whether or not those before
// them were answered. A cluster's clients hold conversations, each with a turn
// every few seconds; a turn does not wait for the answer to the one before.

const (
	loadSeed  = 7
	turnEvery = 2 * time.Second // of a conversation, on average
	// Two of three conversations where there is too much may not leave, in the
	// run with residency.
	residentOf = 3
)

// arrival is one request of a cluster's clients.
type arrival struct {
	at       time.Duration // since the beginning
	talk     int           // number of its conversation, from 0
	turn     int           // in it, from 0
	words    int           // of the answer
	last     bool          // turn of its conversation
	resident bool          // its conversation may not leave, where that counts
}

// schedule is the endless list of a cluster's arrivals, the same each time.
type schedule struct {
	gap    time.Duration // on average
	dice   *rand.Rand
	next   arrival
	talks  []talkState // those that are held now
	number int         // conversations so far
	served int         // arrivals so far
}

type talkState struct{ number, turn, turns int }

func newSchedule(c *cluster, place int) *schedule {
	s := &schedule{gap: time.Duration(float64(time.Second) / c.demand), dice: rand.New(rand.NewPCG(loadSeed, uint64(place)))}
	s.talks = make([]talkState, max(1, int(turnEvery/s.gap)))
	for i := range s.talks {
		s.talks[i] = s.open()
		s.talks[i].turn = s.dice.IntN(s.talks[i].turns) // they are not all at their beginning
	}
	return s
}

func (s *schedule) open() talkState {
	s.number++
	return talkState{number: s.number - 1, turns: 2 + s.dice.IntN(3)}
}

// take returns the next arrival. Gaps are even with a jitter of a half.
func (s *schedule) take() arrival {
	s.next.at += time.Duration(float64(s.gap) * (0.5 + s.dice.Float64()))
	t := &s.talks[s.served%len(s.talks)]
	s.served++
	if t.turn == t.turns {
		*t = s.open()
	}
	a := s.next
	a.talk, a.turn, a.words, a.resident = t.number, t.turn, 6+s.dice.IntN(5), t.number%residentOf != 0
	t.turn++
	a.last = t.turn == t.turns
	return a
}

// loadTopics open conversations.
var loadTopics = [...]string{
	"Please summarise the minutes of the meeting about the new water intake and list who promised to do what until when.",
	"Write a reply to a customer whose parcel was left in the rain, with an apology and two ways in which we can make up for it.",
	"Explain to a new colleague how the turbines are started after an inspection, one step after the other, with what to check.",
	"Translate the safety notice at the upper gate into plain words that visitors of all ages understand at the first reading.",
}

// conversation is what a turn sends: all turns up to it.
func (a *arrival) conversation(cluster string) []chatMessage {
	talk := []chatMessage{{"user", fmt.Sprintf("Conversation %d in %s. %s", a.talk+1, cluster, loadTopics[a.talk%len(loadTopics)])}}
	for turn := range a.turn {
		talk = append(talk, chatMessage{"assistant", "Yes, with pleasure."}, chatMessage{"user", fmt.Sprintf("Thank you. Now point %d in more detail, please.", turn+1)})
	}
	return talk
}

// rival is one policy in the comparison: its fleet, and what its clients saw.
type rival struct {
	*demoFleet
	seen    *tally
	clients []*demoClient // by cluster
}

func newRival(f *demoFleet, seen *tally) *rival {
	r := &rival{demoFleet: f, seen: seen}
	for _, g := range f.gateways {
		r.clients = append(r.clients, newDemoClient(g.address(), seen))
	}
	return r
}

func (r *rival) close() {
	for _, c := range r.clients {
		c.close()
	}
}

// load sends every cluster's requests until over ends; those that were begun
// are then finished.
func (r *rival) load(ctx, over context.Context, begin time.Time) {
	var sources, requests sync.WaitGroup
	for i := range r.world.clusters {
		sources.Go(func() {
			s := newSchedule(&r.world.clusters[i], i)
			for {
				a := s.take()
				due := begin.Add(a.at)
				if !rest(over, time.Until(due)) {
					return
				}
				requests.Go(func() { r.ask(ctx, i, &a, due) })
			}
		})
	}
	sources.Wait()
	requests.Wait()
}

func (r *rival) ask(ctx context.Context, i int, a *arrival, due time.Time) {
	name := r.world.clusters[i].name
	q := question{talk: a.conversation(name), words: a.words, due: due}
	if r.resident && i == excess && a.resident {
		q.require = residencyLabel + "=" + strings.ToLower(name)
	}
	told, err := r.clients[i].ask(ctx, q, onlooker{})
	if err == nil {
		r.seen.turn(fmt.Sprint(name, a.talk), told.engine, a.last)
	}
}
