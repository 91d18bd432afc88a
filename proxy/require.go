package proxy

import (
	"net/http"
	"slices"
	"strings"
)

const requireHeader = "X-Penstock-Require"

const (
	maxRequireTerms = 16
	maxRequireBytes = 128 // of a name, and of a value
)

// demand is what the request's engine must carry: what the tenant demands
// always, and what the request adds.
func (t *tenant) demand(h http.Header) (string, error) {
	if len(h[requireHeader]) == 0 {
		return t.require, nil
	}
	return parseRequire(h, t.demands...)
}

// parseRequire reads the labels that a request demands of its engine, from
// all x-penstock-require lines together, and joins them with those that are
// demanded always. The result is canonical: sorted, without repeats,
// "name=value,name=value"; two values of one name are both demanded. A header
// that cannot be read is an error, never no demand.
func parseRequire(h http.Header, always ...string) (string, error) {
	lines := h[requireHeader]
	terms := slices.Clone(always)
	for _, line := range lines {
		for term := range strings.SplitSeq(line, ",") {
			if len(terms) == len(always)+maxRequireTerms {
				return "", badRequest("x-penstock-require", "x-penstock-require has more than %d terms", maxRequireTerms)
			}
			t, fault := requireTerm(term)
			if fault != "" {
				return "", badRequest("x-penstock-require", "term %d of x-penstock-require %s", len(terms)-len(always)+1, fault)
			}
			terms = append(terms, t)
		}
	}
	slices.Sort(terms)
	return strings.Join(slices.Compact(terms), ","), nil
}

// requireTerm reads one name=value; fault says what is wrong with it.
func requireTerm(term string) (canonical, fault string) {
	name, value, ok := strings.Cut(term, "=")
	if !ok {
		return "", "is not name=value"
	}
	name, value = strings.Trim(name, " \t"), strings.Trim(value, " \t")
	for _, part := range [...]string{name, value} {
		switch {
		case part == "":
			return "", "has an empty name or value"
		case len(part) > maxRequireBytes:
			return "", "has a name or value that is too long"
		case strings.ContainsFunc(part, func(r rune) bool { return !labelRune(r) }):
			return "", "has characters other than A-Z a-z 0-9 . _ / : -"
		}
	}
	return name + "=" + value, ""
}

func labelRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._/:-", r)
}
