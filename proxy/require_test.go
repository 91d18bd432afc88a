package proxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRequire(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("a=b,", 16), ",")
	longest := strings.Repeat("n", 128) + "=" + strings.Repeat("v", 128)
	for _, c := range []struct {
		lines []string
		want  string
		fault string
	}{
		{nil, "", ""},
		{[]string{"residency=eu,gpu=h100"}, "gpu=h100,residency=eu", ""},
		{[]string{"residency=eu", " gpu = h100 ,residency=eu"}, "gpu=h100,residency=eu", ""},
		{[]string{"residency=eu", "residency=us"}, "residency=eu,residency=us", ""},
		{[]string{"a.b/c:d-e_F9=v"}, "a.b/c:d-e_F9=v", ""},
		{[]string{longest}, longest, ""},
		{[]string{many}, "a=b", ""},
		{[]string{""}, "", "term 1 of x-penstock-require is not name=value"},
		{[]string{"a=b", ""}, "", "term 2 of x-penstock-require is not name=value"},
		{[]string{"a=b,"}, "", "term 2 of x-penstock-require is not name=value"},
		{[]string{"residency"}, "", "term 1 of x-penstock-require is not name=value"},
		{[]string{"=eu"}, "", "term 1 of x-penstock-require has an empty name or value"},
		{[]string{"residency= "}, "", "term 1 of x-penstock-require has an empty name or value"},
		{[]string{"a=b=c"}, "", "term 1 of x-penstock-require has characters other than A-Z a-z 0-9 . _ / : -"},
		{[]string{"a=b c"}, "", "term 1 of x-penstock-require has characters other than A-Z a-z 0-9 . _ / : -"},
		{[]string{"a=b\x00"}, "", "term 1 of x-penstock-require has characters other than A-Z a-z 0-9 . _ / : -"},
		{[]string{"a=é"}, "", "term 1 of x-penstock-require has characters other than A-Z a-z 0-9 . _ / : -"},
		{[]string{"a=\xff"}, "", "term 1 of x-penstock-require has characters other than A-Z a-z 0-9 . _ / : -"},
		{[]string{"a=\"b\""}, "", "term 1 of x-penstock-require has characters other than A-Z a-z 0-9 . _ / : -"},
		{[]string{longest + "v"}, "", "term 1 of x-penstock-require has a name or value that is too long"},
		{[]string{many, "a=b"}, "", "x-penstock-require has more than 16 terms"},
	} {
		got, err := parseRequire(http.Header{"X-Penstock-Require": c.lines})
		var bad *BadRequest
		switch {
		case c.fault == "" && err != nil, c.fault != "" && !errors.As(err, &bad), got != c.want:
			t.Errorf("%q: %q, %v", c.lines, got, err)
		case c.fault != "" && (bad.Message != c.fault || bad.Code != "invalid_request"):
			t.Errorf("%q: %q\nwant %q", c.lines, bad.Message, c.fault)
		}
	}
	h := http.Header{"Accept": {"*/*"}}
	if n := testing.AllocsPerRun(100, func() { _, _ = parseRequire(h) }); n != 0 {
		t.Errorf("%v allocations without the header", n)
	}
}

// The order of terms and lines does not matter, and the canonical form is its
// own canonical form.
func TestRequireIsCanonical(t *testing.T) {
	term := rapid.StringMatching(`[a-z./:_-]{1,3}=[A-Z0-9]{1,2}`)
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOfN(term, 1, 16).Draw(t, "terms")
		a, err := parseRequire(http.Header{requireHeader: {strings.Join(terms, ",")}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := parseRequire(http.Header{requireHeader: rapid.Permutation(terms).Draw(t, "lines")})
		if err != nil || a != b {
			t.Fatalf("%q and %q, %v", a, b, err)
		}
		if again, err := parseRequire(http.Header{requireHeader: {a}}); err != nil || again != a {
			t.Fatalf("%q, then %q, %v", a, again, err)
		}
	})
}
