package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// verdict is what a cell of the table comes to. Closed.
type verdict uint8

const (
	isRight   verdict = iota
	isWrong           // at least one repetition was not right
	isWaiting         // wrong, and known to be until the part it needs is built
	isError           // the row could not be run
	isSkipped         // the proxy is not here
)

func (v verdict) String() string {
	return [...]string{"right", "wrong", "waiting", "error", "skipped"}[v]
}

// mark is the verdict in a cell.
func (v verdict) mark() string {
	return [...]string{"✓", "✗", "~", "!", " "}[v]
}

// pace says what a row needs of the machine.
type pace uint8

const (
	together pace = iota // it waits for seconds, or times nothing: others may run beside it
	alone                // it times things, or loads the machine
)

// row is one scenario, what is wanted of a proxy in it, and how that is told
// from what was observed. It never knows which proxy it is.
type row struct {
	name   string
	wanted string
	waits  string // why Penstock may be wrong here for now; "" = it must be right
	pace   pace
	// prepare changes the engines before the proxy starts; nil = they are healthy.
	prepare func(p pair)
	run     func(t *trial) (observation, error)
	// say puts the repetitions that had one label into words.
	say func(f folded) string
	// right judges them; where it is nil the label alone decides: rightLabel.
	right      func(f folded, l limits) bool
	rightLabel string
}

// observation is what one repetition saw: a word, and measures whose meaning is the row's.
type observation struct {
	Label   string    `json:"label,omitempty"`
	Numbers []float64 `json:"numbers,omitempty"`
}

// folded is the repetitions that had the same label.
type folded struct {
	label   string
	numbers []span
	count   int
}

// span is one measure over the repetitions.
type span struct{ low, mid, high float64 }

func (s span) String() string { return fromTo(number(s.low), number(s.high)) }

// digits is a span with that many digits behind the point.
func (s span) digits(n int) string {
	return fromTo(strconv.FormatFloat(s.low, 'f', n, 64), strconv.FormatFloat(s.high, 'f', n, 64))
}

func fromTo(low, high string) string {
	if low == high {
		return low
	}
	return low + "-" + high
}

// number has the digits that a reader can use.
func number(v float64) string {
	switch {
	case v == math.Trunc(v) || math.Abs(v) >= 10:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 0.1:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// fold groups repetitions by label, the most frequent first.
func fold(list []observation) []folded {
	var groups []folded
	byLabel := map[string][]observation{}
	for _, o := range list {
		byLabel[o.Label] = append(byLabel[o.Label], o)
	}
	for label, same := range byLabel {
		f := folded{label: label, count: len(same)}
		for i := range same[0].Numbers {
			values := make([]float64, 0, len(same))
			for _, o := range same {
				values = append(values, o.Numbers[i])
			}
			slices.Sort(values)
			f.numbers = append(f.numbers, span{values[0], values[len(values)/2], values[len(values)-1]})
		}
		groups = append(groups, f)
	}
	slices.SortFunc(groups, func(a, b folded) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.label, b.label))
	})
	return groups
}

// text puts a cell's repetitions into words.
func (r *row) text(groups []folded) string {
	var parts []string
	for _, f := range groups {
		text := f.label
		if r.say != nil {
			text = r.say(f)
		}
		if len(groups) > 1 {
			text = fmt.Sprintf("%d times %s", f.count, text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// holds reports whether every repetition was right.
func (r *row) holds(groups []folded, l limits) bool {
	for _, f := range groups {
		if r.right != nil && !r.right(f, l) || r.right == nil && f.label != r.rightLabel {
			return false
		}
	}
	return len(groups) > 0
}

// limits are what the run was told.
type limits struct {
	firstByte time.Duration // every proxy's limit on the silence before an answer, where it has one
	stall     time.Duration // and on the silence in a stream, where it has one of its own
	overload  time.Duration // how long a load beyond capacity lasts
	slack     float64       // 1, or more for machines that are shared: see quick and least
}

// quick is a bound on a short time or on a small count of late answers.
func (l limits) quick(bound float64) float64 { return bound * l.slack }

// least is a rate that has to be reached: a percent less for every unit of slack beyond 1, down to half.
func (l limits) least(rate float64) float64 { return rate * max(0.5, 1-(l.slack-1)/100) }

// watch is how long a client looks on that waits for a limit.
func (l limits) watch() time.Duration { return max(l.firstByte, l.stall)*5/4 + 2*time.Second }

// within is a limit with the tolerance of timers and of a busy machine.
func within(v float64, limit time.Duration) bool {
	return v <= limit.Seconds()*1.1+1.5
}
