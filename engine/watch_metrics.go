package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	scrapeEvery  = time.Second
	scrapeWithin = 500 * time.Millisecond
	absentEvery  = 30 * time.Second // where the page is missing or says nothing to us
	scrapesToLog = 3                // failures in a row that are worth a log line
)

// watchMetrics reads the metrics page of a ready engine.
func (w *watch) watchMetrics(ctx context.Context) {
	var page pageLog
	var r metricsReader
	w.abandoned.watch(true)
	defer w.dropAbandoned()
	for {
		asked := time.Now()
		wait := scrapeEvery
		if w.Healthy() {
			got, err := w.scrape(ctx, &r)
			if ctx.Err() != nil {
				return
			}
			w.polls.scrapes[got].Add(1)
			page.saw(w, got, err)
			if got == scrapeAbsent || got == scrapeNotWanted {
				wait = absentEvery
			}
		}
		w.freeAbandoned(time.Now())
		if !pause(ctx, wait-time.Since(asked), w.scrapeNow) {
			return
		}
	}
}

// metricsReader is what the metrics of an engine of known kind are read with.
type metricsReader struct {
	collector
	at int // the page of its dialect's that was there last
}

// scrape reads the engine's metrics once and publishes the Sample.
func (w *watch) scrape(ctx context.Context, r *metricsReader) (scrape, error) {
	d := w.dialectNow()
	configured := dialectByName(w.engine.Load().Dialect) != nil
	switch {
	case configured && len(d.metrics) == 0:
		return scrapeNotWanted, nil
	case d == nil || len(d.metrics) == 0:
		return w.searchMetrics(ctx)
	}
	if r.dialect != d {
		*r = metricsReader{collector: *newCollector(d)}
	}
	var absent error
	for range d.metrics {
		page := d.metrics[r.at]
		ans, err := w.readMetrics(ctx, page)
		if err == nil && ans.missing() || err != nil && onOtherPort(page) {
			if problem := ans.problem(page, err); absent == nil {
				absent = problem
			} else {
				absent = fmt.Errorf("%w, %w", absent, problem)
			}
			w.ask.put(ans)
			r.at = (r.at + 1) % len(d.metrics)
			continue
		}
		defer w.ask.put(ans)
		if err == nil && ans.ok() {
			return w.readSample(r, ans.body, page)
		}
		w.answered(askedMetrics, ans.definite(err), func(ev *evidence) { ev.sawFamilies(0, "") })
		if err != nil {
			return scrapeFailure(err), err
		}
		return scrapeStatus, ans.problem(page, nil)
	}
	w.answered(askedMetrics, true, func(ev *evidence) { ev.sawFamilies(0, "") })
	return scrapeAbsent, absent
}

func (w *watch) readMetrics(ctx context.Context, page string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin)
	defer cancel()
	return w.ask.get(ctx, w.ask.kept, w.engine.Load(), page, maxPageBytes)
}

// searchMetrics looks for signs of the engine's kind on the metrics pages of
// all kinds. Where one is found, its kind is known and scrape is called again
// at once.
func (w *watch) searchMetrics(ctx context.Context) (scrape, error) {
	definite := true
	var failed error
	for _, page := range unknownMetrics {
		ans, err := w.readMetrics(ctx, page)
		on := kinds(0)
		if err == nil && ans.ok() {
			on = kindsOn(ans.body)
		}
		definite = definite && ans.definite(err)
		w.ask.put(ans)
		if on != 0 {
			w.answered(askedMetrics, true, func(ev *evidence) { ev.sawFamilies(on, page) })
			return scrapeNotWanted, nil
		}
		if err != nil {
			failed = err
		}
	}
	w.answered(askedMetrics, definite, func(ev *evidence) { ev.sawFamilies(0, "") })
	if failed != nil && w.dialectNow() == nil {
		return scrapeFailure(failed), failed
	}
	return scrapeNotWanted, nil
}

// readSample reads a page of the engine's kind, and whether it still is of
// that kind.
func (w *watch) readSample(r *metricsReader, body []byte, page string) (scrape, error) {
	sample, stats := r.read(body, time.Now())
	w.mu.Lock()
	certain := w.evidence.families != 0 && sample.Has != 0
	if certain {
		w.evidence.contrary = 0
	}
	w.mu.Unlock()
	on := kinds(0)
	if !certain {
		on = kindsOn(body)
		w.answered(askedMetrics, true, func(ev *evidence) { ev.sawFamilies(on, page) })
	}
	if w.dialectNow() != r.dialect {
		return scrapeNotWanted, nil
	}
	if !stats.overflow {
		w.noteSlots(&sample)
	}
	got, err := w.publishSample(sample, stats)
	if others := on.without(r.dialect); got == scrapeNameless && others != "" {
		err = fmt.Errorf("%w, but some of %s", err, others)
	}
	return got, err
}

// noteSlots takes over the slots that a metrics page gives.
func (w *watch) noteSlots(s *Sample) {
	slots := 0
	if s.Has&FieldSlots != 0 && s.Slots >= 1 && s.Slots <= maxSlots {
		slots = int(s.Slots)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slots > 0 && w.evidence.pageSlots != slots {
		w.evidence.pageSlots = slots
		w.concludeLocked()
	}
}

// publishSample publishes what a page said. A page with none of the known
// names is published too: it makes the load unknown at once.
func (w *watch) publishSample(s Sample, stats pageStats) (scrape, error) {
	w.polls.malformed.Add(uint64(stats.malformed))
	if stats.overflow {
		return scrapeTooMany, fmt.Errorf("more than %d series", maxPageSeries)
	}
	w.SetSample(&s)
	w.engine.Load().learnFromGauges(&s)
	if s.Has == 0 {
		return scrapeNameless, errNameless
	}
	w.signalAt.Store(s.At.UnixNano())
	return scrapeRead, nil
}

var errNameless = errors.New("exposition has none of the known names")

func scrapeFailure(err error) scrape {
	if errors.Is(err, errTooLarge) {
		return scrapeTooLarge
	}
	switch verdictOf(answer{}, err) {
	case timedOut:
		return scrapeTimeout
	case refused, unreachable:
		return scrapeRefused
	default:
		return scrapeBroken
	}
}

// pageLog decides which readings are news. A page that fails now and then
// under load is not.
type pageLog struct {
	failures   int
	unreadable bool
}

func (l *pageLog) saw(w *watch, got scrape, err error) {
	if got == scrapeNotWanted {
		*l = pageLog{}
		return
	}
	if err == nil {
		l.failures = 0
		if l.unreadable {
			l.unreadable = false
			w.logReadable("metrics page", nil)
		}
		return
	}
	l.failures++
	definite := got == scrapeAbsent || got == scrapeNameless
	if !l.unreadable && (definite || l.failures == scrapesToLog) {
		l.unreadable = true
		w.logReadable("metrics page", err)
	}
}
