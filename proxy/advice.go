package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxWait bounds what clients are told to wait, in seconds: SDKs obey 1 to 60 s
// and differ beyond, from giving up to waiting it out.
const maxWait = 60

// advice is what an engine's refusal says about trying again, in the headers
// that SDKs obey. The zero value says nothing.
type advice struct {
	seconds int    // Retry-After, 1 to maxWait; 0 = not told, or a date
	millis  int    // retry-after-ms, which SDKs prefer; 0 = not told
	retry   string // x-should-retry: "true", "false", or "" = not told
}

func adviceOf(h http.Header) advice {
	a := advice{seconds: waitOf(h["Retry-After"], maxWait), millis: waitOf(h["Retry-After-Ms"], maxWait*1000)}
	if a.millis > 0 && a.seconds == 0 {
		a.seconds = (a.millis + 999) / 1000
	}
	if v := h["X-Should-Retry"]; len(v) > 0 && (v[0] == "true" || v[0] == "false") {
		a.retry = v[0]
	}
	return a
}

// wait is how long the engine wants to be left alone; 0 = not told.
func (a advice) wait() time.Duration {
	if a.millis > 0 {
		return time.Duration(a.millis) * time.Millisecond
	}
	return time.Duration(a.seconds) * time.Second
}

// waitOf reads a whole number of 1 and more, at most limit; 0 for anything else.
func waitOf(v []string, limit int) int {
	if len(v) == 0 {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(v[0]))
	if err != nil || n < 1 {
		return 0
	}
	return min(n, limit)
}

// write adds what Retry-After does not say.
func (a advice) write(h http.Header) {
	if a.millis > 0 {
		h["Retry-After-Ms"] = []string{strconv.Itoa(a.millis)}
	}
	if a.retry != "" {
		h["X-Should-Retry"] = []string{a.retry}
	}
}
