package proxy

import (
	"log/slog"
	"strconv"
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
	b = logText(b, "path", apiPaths[x.api])
	b = logText(b, "model", clipped(x.env.Model))
	b = logInt(b, "status", int64(x.status))
	b = logText(b, "outcome", o.String())
	b = logText(b, "engine", x.engine)
	b = logInt(b, "attempts", int64(x.attempts))
	b = append(b, `,"stream":`...)
	b = strconv.AppendBool(b, x.env.Stream)
	b = logMS(b, "duration_ms", total)
	b = logMS(b, "ttft_ms", ttft)
	b = logInt(b, "prompt_tokens", u.Prompt)
	b = logInt(b, "cached_tokens", u.Cached)
	b = logInt(b, "completion_tokens", u.Completion)
	b = logInt(b, "bytes_out", x.out)
	if x.body != nil {
		b = logInt(b, "bytes_in", int64(len(x.body.bytes)))
	}
	if x.attempts > 0 {
		b = logText(b, "decision", x.pick.Why.String())
		b = logText(b, "affinity", x.source.String())
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
		if c := value[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			return appendJSONString(b, value)
		}
	}
	return append(append(append(b, '"'), value...), '"')
}

func logInt(b []byte, key string, value int64) []byte {
	b = append(append(append(b, `,"`...), key...), `":`...)
	return strconv.AppendInt(b, value, 10)
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

// clipped bounds a client's text for the log.
func clipped(s string) string {
	const longest = 256
	if len(s) > longest {
		return s[:longest]
	}
	return s
}
