package engine

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Detected is what kind of engine answered, by which sign it was told, and
// what it says of itself. Comparable.
type Detected struct {
	Dialect string // one of DialectNames, but never "auto"
	How     string // for people: what gave it away
	Version string // "" = not told
	Slots   int    // requests it says it takes at once; 0 = not told
	Cap     int64  // in-flight cap that follows from Slots; 0 = none
	Can     Capability
}

// howConfigured is the How of a dialect that was not found but told.
const howConfigured = "configured"

// howAfter is the sign to show where old was found before: the first sign
// stays, later ones only confirm it.
func (d Detected) howAfter(old *Detected) string {
	if d.Dialect == old.Dialect && d.How != howConfigured && old.How != howConfigured {
		return old.How
	}
	return d.How
}

// kinds is a set of dialects, by their places in the table.
type kinds uint16

func (k kinds) first() *dialect { return &dialects[bits.TrailingZeros16(uint16(k))] }

func (k kinds) has(d *dialect) bool {
	for i := range dialects {
		if &dialects[i] == d {
			return k&(1<<i) != 0
		}
	}
	return false
}

// question is a set of things to ask an engine about its kind: the about page
// of each dialect, by its place in the table, the metrics page and the models.
type question uint32

const (
	askedMetrics question = 1 << (16 + iota)
	askedModels
)

func aboutQuestion(i int) question { return 1 << i }

// askedAll is every question there is.
var askedAll = func() question {
	all := askedMetrics | askedModels
	for i := range dialects {
		if dialects[i].about.read != nil {
			all |= aboutQuestion(i)
		}
	}
	return all
}()

// signPages are the pages on which engines were looked at for signs.
var signPages = func() []string {
	pages := append(slices.Clone(unknownMetrics), modelsPath)
	for i := range dialects {
		for _, p := range dialects[i].about.pages {
			if !slices.Contains(pages, p) {
				pages = append(pages, p)
			}
		}
	}
	return pages
}()

// contraryPages is how many metrics pages in a row must show another kind of
// engine than the one known before they are believed: behind one address
// there may be two kinds that answer in turn.
const contraryPages = 3

// evidence is what the answers of one engine say about its kind. A later
// answer replaces what the same question gave before.
type evidence struct {
	server   string           // Server header
	ownedBy  string           // of its models
	about    map[string]about // by dialect, where the page was of that kind
	families kinds            // whose metric families are on its page
	page     string           // where that page is
	contrary int              // pages in a row that showed other families

	pageSlots int // slots by its metrics page

	asked question // what has a definite answer by now, or was asked in vain often enough
}

// sawFamilies takes what one reading of a metrics page showed.
func (ev *evidence) sawFamilies(on kinds, page string) {
	if ev.families == on || ev.families == 0 {
		ev.families, ev.page, ev.contrary = on, page, 0
		return
	}
	if ev.contrary++; ev.contrary >= contraryPages {
		ev.families, ev.page, ev.contrary = on, page, 0
	}
}

// sawAbout takes what dialect d's page said; is is false where it was not its page.
func (ev *evidence) sawAbout(d *dialect, a about, is bool) {
	if !is {
		delete(ev.about, d.name)
		return
	}
	if ev.about == nil {
		ev.about = make(map[string]about)
	}
	ev.about[d.name] = a
}

// decide tells the dialect by the strongest sign there is, nil while there is
// none and a question is open. It is firm where the sign is one that only
// that kind gives, or where nothing is left to ask.
func (ev *evidence) decide() (d *dialect, how string, firm bool) {
	if d, how = ev.aboutSign(false); d != nil {
		return d, how, true
	}
	if ev.families != 0 {
		d, how = ev.familySign()
		return d, how, true
	}
	for i := range dialects {
		if d = &dialects[i]; d.server != "" && ev.server == d.server {
			return d, "header Server: " + d.server, true
		}
	}
	firm = ev.asked&askedAll == askedAll
	for i := range dialects {
		if d = &dialects[i]; d.ownedBy != "" && ev.ownedBy == d.ownedBy {
			return d, fmt.Sprintf("owned_by %q in %s", d.ownedBy, modelsPath), firm
		}
	}
	if d, how = ev.aboutSign(true); d != nil {
		return d, how, firm
	}
	if firm {
		return dialectByName(DialectOpenAI), "no sign of a known kind on " + strings.Join(signPages, ", "), true
	}
	return nil, "", false
}

// aboutSign is the first dialect whose own page answered as such.
func (ev *evidence) aboutSign(weak bool) (*dialect, string) {
	for i := range dialects {
		d := &dialects[i]
		a, ok := ev.about[d.name]
		switch {
		case !ok || d.about.weak != weak:
		case weak:
			return d, fmt.Sprintf("%s answers %q", a.page, a.version)
		default:
			return d, fmt.Sprintf("%s in %s", a.sign, a.page)
		}
	}
	return nil, ""
}

// familySign tells by the metric families. Where the page has those of
// several kinds, the one that also owns the models is taken, else the first of
// the table; where it is one that only another kind has, that kind shows the
// names of the engine inside it.
func (ev *evidence) familySign() (*dialect, string) {
	d := ev.families.first()
	for i := range dialects {
		if o := &dialects[i]; ev.ownedBy != "" && o.ownedBy == ev.ownedBy && ev.families.has(o) {
			d = o
		}
	}
	how := fmt.Sprintf("metric families %q on %s", d.families[0], ev.page)
	if others := bits.OnesCount16(uint16(ev.families)) - 1; others > 0 {
		how += fmt.Sprintf(", beside those of %s", ev.families.without(d))
	}
	if !slices.Contains(d.metrics, ev.page) {
		for i := range dialects {
			if slices.Contains(dialects[i].metrics, ev.page) {
				return &dialects[i], how
			}
		}
	}
	return d, how
}

// without names the kinds of the set but one.
func (k kinds) without(not *dialect) string {
	var names []string
	for i := range dialects {
		if d := &dialects[i]; d != not && k.has(d) {
			names = append(names, d.name)
		}
	}
	return strings.Join(names, " and ")
}

// conclude is decide under the configured word, which overrules all signs,
// with what the engine says of itself. It is undecided (nil) while nothing is
// known.
func (ev *evidence) conclude(configured string) (found *Detected, firm bool) {
	d, how := dialectByName(configured), howConfigured
	if firm = d != nil; !firm {
		d, how, firm = ev.decide()
	}
	if d == nil {
		return nil, false
	}
	a := ev.about[d.name]
	slots := a.slots
	if slots == 0 {
		slots = ev.pageSlots
	}
	return &Detected{Dialect: d.name, How: how, Version: a.version, Slots: slots, Cap: d.slots.capFor(slots), Can: d.can()}, firm
}

// describedBy reports whether the dialect's own page has been asked for, if it
// has one.
func (ev *evidence) describedBy(dialect string) bool {
	for i := range dialects {
		if d := &dialects[i]; d.name == dialect {
			return d.about.read == nil || ev.asked&aboutQuestion(i) != 0
		}
	}
	return false
}

// context is the context length that the engine's own page gives for all of
// its models, 0 if none.
func (ev *evidence) context(d *dialect) int {
	if d == nil {
		return 0
	}
	return ev.about[d.name].context
}
