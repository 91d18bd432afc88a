package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const wantDuration = `want a duration like "30s"`

// durationText is what a duration looks like, also one beyond all bounds.
var durationText = regexp.MustCompile(`^-?([0-9.]+(ns|us|ms|s|m|h))+$`)

// parseDuration reads "30s". The error says what to write.
func parseDuration(v any) (time.Duration, error) {
	switch v := v.(type) {
	case string:
		if isNumber(v) {
			return 0, fmt.Errorf("a duration needs its unit: write %q or %q", v+"ms", v+"s")
		}
		d, err := time.ParseDuration(v)
		switch {
		case err != nil && durationText.MatchString(v):
			return 0, fmt.Errorf("a duration that is too long to count")
		case err != nil:
			return 0, fmt.Errorf("%s", wantDuration)
		}
		return d, nil
	case int64, float64:
		n := show(v)
		return 0, fmt.Errorf("a duration needs its unit: write %q or %q", n+"ms", n+"s")
	}
	return 0, fmt.Errorf("%s", wantDuration)
}

var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

var sizeText = regexp.MustCompile(`^([0-9]+) *([A-Za-z]*)$`)

const wantSize = `want a size like "64MiB" ("KiB", "MiB", "GiB") or a number of bytes`

// parseSize reads "64MiB" or a plain number of bytes. The error says what to write.
func parseSize(v any) (int64, error) {
	if n, ok := v.(int64); ok {
		return n, nil
	}
	text, _ := v.(string)
	m := sizeText.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%s", wantSize)
	}
	number, unit := m[1], m[2]
	if unit == "" {
		return 0, fmt.Errorf("a size in quotes needs its unit: write %q, or %s without quotes for bytes", number+"MiB", number)
	}
	for _, u := range units {
		switch {
		case strings.HasPrefix(strings.ToLower(unit), strings.ToLower(u.name[:1])) && text != number+u.name:
			return 0, fmt.Errorf("want a size as in %q", number+u.name)
		case unit == u.name:
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil || n > math.MaxInt64/u.bytes {
				return 0, fmt.Errorf("more bytes than can be counted")
			}
			return n * u.bytes, nil
		}
	}
	return 0, fmt.Errorf("%s", wantSize)
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && s != "0" && strings.Trim(s, "0123456789.") == ""
}
