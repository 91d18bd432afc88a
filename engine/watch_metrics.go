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
	var c *collector
	for {
		asked := time.Now()
		wait := scrapeEvery
		if w.Ready() {
			got, err := w.scrape(ctx, &c)
			if ctx.Err() != nil {
				return
			}
			w.polls.scrapes[got].Add(1)
			page.saw(w, got, err)
			if got == scrapeAbsent || got == scrapeNotWanted {
				wait = absentEvery
			}
		}
		if !pause(ctx, wait-time.Since(asked), w.scrapeNow) {
			return
		}
	}
}

// scrape reads the page once and publishes the Sample.
func (w *watch) scrape(ctx context.Context, c **collector) (scrape, error) {
	e := w.engine.Load()
	d := w.dialectNow()
	auto := dialectByName(e.Dialect) == nil
	path := "/metrics"
	switch {
	case !auto && d.metricsPath == "":
		return scrapeNotWanted, nil
	case d != nil && d.metricsPath != "":
		path = d.metricsPath
	}
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin)
	defer cancel()
	ans, err := w.ask.get(ctx, w.ask.kept, e, path, maxPageBytes)
	defer w.ask.put(ans)
	if auto && ans.definite(err) {
		family := ""
		if f := familyOn(ans.body); f != nil && ans.ok() {
			family = f.name
		}
		w.note(func(ev *evidence) {
			ev.family = family
			ev.asked |= askedMetrics
		})
		d = w.dialectNow()
	}
	switch {
	case d == nil && err == nil, d != nil && d.metricsPath == "":
		return scrapeNotWanted, nil
	case err != nil:
		return scrapeFailure(err), err
	case ans.missing():
		return scrapeAbsent, ans.problem(path, nil)
	case !ans.ok():
		return scrapeStatus, ans.problem(path, nil)
	}
	if *c == nil || (*c).dialect != d {
		*c = newCollector(d)
	}
	return w.publishSample((*c).read(ans.body, time.Now()))
}

// publishSample publishes what a page said. A page with none of the known
// names is published too: it makes the load unknown at once.
func (w *watch) publishSample(s Sample, stats pageStats) (scrape, error) {
	w.polls.malformed.Add(uint64(stats.malformed))
	if stats.overflow {
		return scrapeTooMany, fmt.Errorf("more than %d series", maxPageSeries)
	}
	w.SetSample(&s)
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
