package proxy

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// logAccess writes the request's line: one JSON object in the shape of the
// rest of the log, without the request's or the answer's text, its key or its
// credentials. It is encoded by hand: every request pays for it, and slog's
// own encoder costs as much as the pick, the body scan and the relay together.
func (x *exchange) logAccess(o Outcome, total, ttft time.Duration, u usage) {
	if x.h.access == nil || !x.h.log.Enabled(x.r.Context(), slog.LevelInfo) {
		return
	}
	b := append(x.line[:0], `{"time":"`...)
	b = x.arrived.Add(total).UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"INFO","msg":"request"`...)
	b = logText(b, "request_id", x.id[0])
	if id := traceID(x.r.Header); id != "" {
		b = logText(b, "trace_id", id)
	}
	b = logText(b, "client_ip", hostOf(x.r.RemoteAddr))
	b = logText(b, "method", x.ep.method)
	b = logText(b, "path", x.ep.path)
	b = logText(b, "tenant", x.tenant.name)
	b = logText(b, "priority", x.priority.String())
	b = logText(b, "model", clipped(x.env.Model))
	if x.alias != "" {
		b = logText(b, "alias", x.alias)
	}
	b = logInt(b, "status", int64(x.status))
	b = logText(b, "outcome", o.String())
	b = logText(b, "engine", x.engine)
	b = logInt(b, "attempts", int64(x.attempts))
	b = append(b, `,"stream":`...)
	b = strconv.AppendBool(b, x.env.Stream)
	b = logMS(b, "duration_ms", total)
	if x.queued > 0 {
		b = logMS(b, "queue_ms", x.queued)
	}
	if !x.firstAt.IsZero() {
		b = logMS(b, "ttft_ms", ttft)
	}
	switch { // what the engine did not count is not zero
	case u.Known:
		b = logInt(b, "prompt_tokens", u.Prompt)
		b = logInt(b, "cached_tokens", u.Cached)
		b = logInt(b, "completion_tokens", u.Completion)
	case x.answer.tokens > 0:
		b = logInt(b, "content_events", int64(x.answer.tokens))
	}
	b = logInt(b, "bytes_out", x.out)
	if x.in > 0 {
		b = logInt(b, "bytes_in", x.in)
	}
	if x.attempts > 0 {
		b = logText(b, "decision", x.pick.Why.String())
		b = logText(b, "affinity", x.source.String())
	}
	if x.ask.Keyed {
		b = logHex(b, "conversation", x.ask.Key)
	}
	if x.code != "" {
		b = logText(b, "code", x.code)
	}
	x.line = append(b, "}\n"...)
	x.h.access.Write(x.line)
}

func logText(b []byte, key, value string) []byte {
	b = append(append(append(b, `,"`...), key...), `":`...)
	for i := range len(value) { // nearly all need no escape
		if !unescaped[value[i]] {
			return appendJSONString(b, value)
		}
	}
	return append(append(append(b, '"'), value...), '"')
}

// unescaped are the bytes that a JSON string has as they are.
var unescaped = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

func logInt(b []byte, key string, value int64) []byte {
	b = append(append(append(b, `,"`...), key...), `":`...)
	return strconv.AppendInt(b, value, 10)
}

// logHex writes 16 digits: of a keyed hash, so that requests of a conversation
// are known for such and nobody can tell whose it is.
func logHex(b []byte, key string, value uint64) []byte {
	const digits = "0123456789abcdef"
	b = append(append(append(b, `,"`...), key...), `":"`...)
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[value>>shift&15])
	}
	return append(b, '"')
}

// logMS writes a duration in milliseconds, to the microsecond.
func logMS(b []byte, key string, d time.Duration) []byte {
	us := d.Microseconds()
	b = logInt(b, key, us/1000)
	if us %= 1000; us != 0 {
		b = append(b, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
	}
	return b
}

// traceID is the trace of a W3C traceparent (version, 32 hexadecimal digits of
// trace, 16 of parent, flags), "" where there is none.
func traceID(h http.Header) string {
	v := h["Traceparent"]
	if len(v) != 1 || len(v[0]) < 55 || v[0][2] != '-' || v[0][35] != '-' {
		return ""
	}
	id := v[0][3:35]
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return id
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		address = address[:i]
	}
	return strings.Trim(address, "[]")
}

// clipped bounds a client's text for the log.
func clipped(s string) string {
	const longest = 256
	if len(s) > longest {
		return s[:longest]
	}
	return s
}
