package engine

import (
	"maps"
	"time"
)

// holdFor is how long engines stay that were no longer listed all at once:
// three look-ups, in which an accident is repaired or is none. Nothing is
// lost by it: an engine that is really gone is down by its health.
const holdFor = 15 * time.Second

// holds are the engines that stay although nobody lists them, since when.
type holds map[place]time.Time

// settle decides which engines of the fleet stay although wanted does not have
// them. One that is no longer listed goes at once, unless its listing has
// nothing left, or more than half of the fleet's capacity would go: those stay
// for holdFor. What the configuration itself took out is not in current.
// due is when the next of them goes, zero for never.
func (h holds) settle(current, wanted []Config, emptied func(foundBy string) bool, now time.Time) (after holds, stay []Config, due time.Time) {
	after = make(holds)
	listed, names, urls := make(map[place]bool, len(wanted)), make(map[string]bool, len(wanted)), make(map[string]bool, len(wanted))
	for i := range wanted {
		c := &wanted[i]
		listed[c.place()], names[c.Name], urls[c.URL] = true, true, true
	}
	_, share := Lost(current, wanted)
	for i := range current {
		c := current[i]
		if c.foundBy == "" || listed[c.place()] || names[c.Name] || urls[c.URL] {
			continue
		}
		if share <= 0.5 && !emptied(c.foundBy) {
			continue
		}
		since, held := h[c.place()]
		if !held {
			since = now
		}
		end := since.Add(holdFor)
		if !end.After(now) {
			continue
		}
		after[c.place()] = since
		stay = append(stay, c)
		if due.IsZero() || end.Before(due) {
			due = end
		}
	}
	return after, stay, due
}

// same reports whether the same engines are held.
func (h holds) same(other holds) bool { return maps.Equal(h, other) }
