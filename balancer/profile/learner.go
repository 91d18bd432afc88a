package profile

import (
	"math"
	"time"

	"penstock/engine"
	"penstock/route"
)

// Learner learns the speed of one engine from the answers that it gives. All
// time that an engine works is spent on steps, on tokens of sequences and on
// tokens of prompts; so for each answer it is added up what the engine computed
// from its first token to its last, of all answers that were under way then.
// Its zero value knows nothing. It belongs to one loop.
//
// What is learned is how long steps take, not how long answers took: it is the
// same under any load, so it may steer the load without chasing itself.
type Learner struct {
	rows regression
	seen float64   // answers in rows, fading with them
	last time.Time // an answer was learned from

	heard time.Time // a row came
	now   time.Time // of the last call

	kept    []attempt // in order of their end: those that may overlap one that waits
	waiting int       // kept[waiting:] have not been made rows of yet
	longest float64   // ms that one took, lately
	epoch   time.Time // what the times in kept count from

	signals signals
	batch   time.Time   // when the batch of rows at hand began
	shape   shape       // expected
	best    route.Speed // the last estimate
	begin   float64     // delta of it
}

// attempt is an answer on the time of the engine, in ms.
type attempt struct {
	start, first, last, end float64
	out, uncached           float64
	from, to                float64 // in flight, itself included
	how                     shown
}

// shown is what can be read off an attempt.
type shown uint8

const (
	showsWork   shown = 1 << iota // it is part of what the engine did
	showsSteps                    // the time between its tokens is known
	showsFirst                    // the time to its first token is known
	showsTotal                    // only its whole time is known
	showsCounts                   // the engine counted its tokens
)

const (
	// memory is how long an answer counts: after it a third is left.
	memory = 3 * time.Minute
	// An answer waits for those that overlap it to end, as long again as it took,
	// within these bounds in ms.
	shortestWait, longestWait = 1000, 15_000
	// firstWeight is the weight of a first token: a mean pace says more, but where
	// the engine does one thing at a time only it tells of prompts.
	firstWeight = 0.01
	// oneStep is a prompt that any engine computes in one step.
	oneStep = 512
	// early is how many answers each have an estimate of their own; then one for
	// all that came at once is enough.
	early = 20
	// maxKept bounds what is kept of one engine's answers.
	maxKept = 1024
)

// Answers takes in what ended since the last call, oldest first.
func (l *Learner) Answers(batch []engine.Answer, now time.Time) {
	if l.epoch.IsZero() {
		l.epoch, l.last = now, now
	}
	l.now = now
	for i := range batch {
		l.keep(&batch[i])
	}
	l.settle(l.ms(now))
}

func (l *Learner) ms(t time.Time) float64 { return float64(t.Sub(l.epoch)) / 1e6 }

func (l *Learner) keep(a *engine.Answer) {
	if a.How == engine.EndedBusy || a.Total <= 0 {
		return
	}
	end := l.ms(a.At)
	k := attempt{
		start: end - float64(a.Total)/1e6, end: end, last: end,
		out: float64(a.Output), uncached: float64(max(a.Prompt-a.Cached, 0)),
		from: float64(a.InFlightFrom), to: float64(a.InFlightTo), how: showsWork,
	}
	switch {
	case a.TTFT > 0:
		k.first = min(k.start+float64(a.TTFT)/1e6, end)
		if a.TBOT > 0 {
			k.last = k.first + float64(a.TBOT)/1e6*(k.out-1)
			if k.last <= end+1 {
				k.how |= showsSteps
			}
			k.last = min(k.last, end)
		}
		if !a.Cold {
			k.how |= showsFirst
		}
	case a.Output > 0:
		k.first = k.start + min(l.firstToken(k.uncached), (end-k.start)/2)
		k.how |= showsTotal
	default:
		k.first = end
	}
	if a.Counted {
		k.how |= showsCounts
	}
	if a.How != engine.EndedWhole {
		k.how &= showsWork
	}
	if len(l.kept) == maxKept {
		l.drop(maxKept / 4)
	}
	l.kept = append(l.kept, k)
}

// firstToken is how long a first token takes an engine with little to do, in ms.
func (l *Learner) firstToken(uncached float64) float64 {
	return l.begin + 1.5*(l.best.Step+l.best.PerSeq) + l.best.PerToken*uncached
}

func (l *Learner) drop(n int) {
	l.kept = append(l.kept[:0], l.kept[n:]...)
	l.waiting = max(0, l.waiting-n)
}

// settle makes rows of the answers that wait for no other any more.
func (l *Learner) settle(now float64) {
	for ; l.waiting < len(l.kept); l.waiting++ {
		k := &l.kept[l.waiting]
		open := l.open(k)
		if open > 0 && now < k.end+min(max(k.end-k.start, shortestWait), longestWait) {
			break
		}
		l.learn(k, max(open, 0))
		l.longest = max(l.longest*0.99, k.end-k.start)
	}
	l.estimate()
	// What ended before all that wait began is of no more use.
	oldest := now
	for i := l.waiting; i < len(l.kept); i++ {
		oldest = min(oldest, l.kept[i].start)
	}
	// Answers that are still under way may have begun as early as the longest did.
	oldest -= min(1.5*l.longest+shortestWait, longestWait)
	n := 0
	for n < l.waiting && l.kept[n].end < oldest {
		n++
	}
	if n > len(l.kept)/4 {
		l.drop(n)
	}
}

// open is how many of the attempts that were in flight when k ended have not
// been seen to end.
func (l *Learner) open(k *attempt) float64 {
	n := k.to - 1
	for i := l.waiting + 1; i < len(l.kept) && n > 0; i++ {
		if l.kept[i].start < k.end {
			n--
		}
	}
	return n
}

// learn adds the rows of one answer; open attempts that overlap it have not
// been seen to end.
func (l *Learner) learn(k *attempt, open float64) {
	if k.how&^(showsWork|showsCounts) == 0 {
		return
	}
	trust := 1.0
	if k.how&showsCounts == 0 {
		trust = 0.5
	}
	at := l.epoch.Add(time.Duration(k.end * 1e6))
	l.batchAt(at)
	faded := math.Exp(-max(0, float64(at.Sub(l.last))) / float64(memory))
	if at.After(l.last) {
		l.last = at
	}
	guess := l.estimated()
	if k.how&showsSteps != 0 && k.out >= 2 && k.last > k.first {
		others, prompts, _ := l.work(k, k.first, k.last, open)
		l.rows.add(row{vector{k.out - 1, k.out - 1 + others, prompts}, k.last - k.first, trust * min(1, (k.out-1)/32)}, guess, faded)
		faded = 1
	}
	if k.how&showsFirst != 0 && k.first > k.start {
		// Which of its steps were long is not known, so the others' tokens are not
		// those of their mean pace. One step, of which it may miss the first half:
		// that of a prompt that is computed at once.
		_, prompts, busy := l.work(k, k.start, k.first, open)
		prompts += k.uncached
		weight := firstWeight
		if prompts > oneStep {
			weight /= 4
		}
		l.rows.add(row{vector{1.5, 1.5 * busy, prompts, 1}, k.first - k.start, weight * trust}, guess, faded)
		faded = 1
	}
	if k.how&showsTotal != 0 {
		others, prompts, _ := l.work(k, k.start, k.end, open)
		l.rows.add(row{vector{k.out + 0.5, k.out + others, prompts + k.uncached, 1}, k.end - k.start, trust * min(1, k.out/32)}, guess, faded)
	}
	l.seen = min(l.seen+trust, l.rows.weight*2)
	if l.seen < early {
		l.estimate()
	}
}

// work is what the engine computed for others than k from one time to another:
// tokens of sequences and of prompts, and how many sequences there were on
// average. Others of open attempts went on at k's pace.
func (l *Learner) work(k *attempt, from, to, open float64) (tokens, prompts, busy float64) {
	span, begun := to-from, k.from-1
	for i := range l.kept {
		o := &l.kept[i]
		if o == k || o.end <= from || o.start >= to {
			continue
		}
		if o.start <= k.start && o.end > k.start {
			begun--
		}
		if o.last > o.first {
			both := max(0, min(to, o.last)-max(from, o.first))
			tokens += both / (o.last - o.first) * max(o.out-1, 0)
			busy += both / span
		}
		// Its prompt was computed just before its first token, not while it queued.
		begin := max(o.start, o.first-max(l.firstToken(o.uncached), 1))
		if both := min(to, o.first) - max(from, begin); both > 0 {
			prompts += o.uncached * both / max(o.first-begin, 1e-6)
		}
	}
	if open > 0 && k.last > k.first {
		// Those that were there before k were there all the time.
		all := min(open, max(0, begun))
		pace := max(k.out-1, 0) / (k.last - k.first)
		tokens += (all + (open-all)/2) * pace * span
		busy += all + (open-all)/2
	}
	scale := l.signals.others()
	return tokens * scale, prompts * scale, busy * scale
}

// estimate keeps the best estimate of all rows so far.
func (l *Learner) estimate() {
	if l.shape == (shape{}) {
		l.shape = shapeOf(route.Speed{})
	}
	x, ok := l.rows.solve(l.shape)
	if !ok {
		return
	}
	l.best = route.Speed{Step: x[0], PerSeq: x[1], PerToken: x[2]}
	l.begin = x[3]
}

func (l *Learner) estimated() vector {
	return vector{l.best.Step, l.best.PerSeq, l.best.PerToken, l.begin}
}

// Speed is what was learned so far. Peers is what to expect of an engine that
// serves the same model (Typical): what the answers do not tell apart has its
// ratios. Answers is 0 until the first answer that tells something.
func (l *Learner) Speed(peers route.Speed) route.Speed {
	l.shape = shapeOf(peers)
	l.estimate()
	s := l.best
	s.Answers, s.Slots, s.Held = l.seen, l.signals.slots(), l.signals.most
	if s.Answers > 0 {
		s.Doubt = aged(l.rows.doubt(l.shape, l.estimated()), s, l.now.Sub(l.heard))
		// Nothing costs nothing: a bound for what is divided by it.
		least := max(s.Step, s.PerSeq) * 1e-3
		s.PerSeq, s.PerToken = max(s.PerSeq, least), max(s.PerToken, least*1e-2)
	}
	return s
}

// Peers are believed more than experience with other engines: that is a factor
// of two this way or that.
const (
	beliefInPeers     = 0.2
	beliefInPlausible = 0.05
)

func shapeOf(peers route.Speed) shape {
	if peers.Step > 0 && peers.PerSeq > 0 && peers.PerToken > 0 {
		return shape{peers.PerSeq / peers.Step, peers.PerToken / peers.Step, beliefInPeers}
	}
	return shape{plausiblePerSeq, plausiblePerToken, beliefInPlausible}
}
