package proxy

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"penstock/protect"
)

// meter is what a request has been charged to its tenant's quota, and what
// its answer tells of the quota.
//
// Tokens are charged when they become known: the prompt at admission, by an
// estimate; the output of a stream while it comes, one for each event with
// content; and at the end the difference to what the engine counted. Where the
// engine tells no usage the estimates stay. A request that no engine worked on
// for its client (refused, failed before any content) costs none; one whose
// client left, or whose answer broke off, costs what was known of it by then.
type meter struct {
	charged int64     // in sum
	output  int64     // of that, output
	at      time.Time // of the last charge
	told    int       // of values, those in use
	values  [2 * len(ratelimitNames[0])]string
}

// guessedBytesPerToken makes an estimate of a prompt's tokens from its bytes.
// English text has about four to the token.
const guessedBytesPerToken = 4

const (
	// Output is charged in parts of this many tokens, or after this long: the
	// limit is shared by all of the tenant's streams.
	meterTokens = 32
	meterEvery  = time.Second
)

// ratelimitNames are the headers as SDKs read them: the size of the bucket,
// what is left in it, and how long until it is full.
var ratelimitNames = [2][3]string{
	{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
}

func (m *meter) reset() {
	if m.told > 0 || m.charged != 0 {
		*m = meter{}
	}
}

// meterIn takes the request from its tenant's limits.
func (x *exchange) meterIn() *apiError {
	quota := x.tenant.quota
	if quota == nil {
		return nil
	}
	// Not x.arrived: a slow body may have come between.
	now := time.Now()
	spent, wait := quota.Admit(now)
	if spent == protect.SpentNothing && quota.Counts() {
		x.meter.charged = int64(x.guessedPrompt())
		quota.Charge(now, x.meter.charged)
	}
	x.meter.read(quota.Buckets(now))
	if spent != protect.SpentNothing {
		x.tenant.metrics.limited(spent)
		return errLimited(spent, wait)
	}
	return nil
}

// meterMore charges the output that has come of a stream.
func (x *exchange) meterMore(now time.Time) {
	quota, m := x.tenant.quota, &x.meter
	if !quota.Counts() {
		return
	}
	n := int64(x.answer.tokens) - m.output
	if n < meterTokens && now.Sub(m.at) < meterEvery {
		return
	}
	quota.Charge(now, n)
	m.charged, m.output, m.at = m.charged+n, m.output+n, now
}

// meterOut settles the request with what is known at its end.
func (x *exchange) meterOut(o Outcome, u usage) {
	quota := x.tenant.quota
	if !quota.Counts() {
		return
	}
	due := int64(0)
	switch {
	case u.Known:
		due = u.Prompt + u.Completion
	case x.attempts > 0 && (o == OutcomeOK || o == OutcomeCommitted || o == OutcomeGone):
		due = int64(x.guessedPrompt()) + int64(x.answer.tokens)
	}
	quota.Charge(time.Now(), due-x.meter.charged)
	x.meter.charged = due
}

// read keeps how the quota stands, as headers tell it.
func (m *meter) read(requests, tokens protect.Bucket) {
	var text [6 * 20]byte
	var ends [len(m.values)]int
	out := text[:0]
	for i, b := range [...]protect.Bucket{requests, tokens} {
		if b.Size > 0 {
			out = strconv.AppendInt(out, b.Size, 10)
			ends[3*i] = len(out)
			out = strconv.AppendInt(out, b.Left, 10)
			ends[3*i+1] = len(out)
			out = appendReset(out, b.Full)
		} else {
			ends[3*i], ends[3*i+1] = len(out), len(out)
		}
		ends[3*i+2] = len(out)
	}
	all, from := string(out), 0 // one allocation for all of them
	for i, end := range ends {
		m.values[i], from = all[from:end], end
	}
	m.told = len(m.values)
}

// appendReset writes a duration to the millisecond: 17ms, 1s, 61.5s.
func appendReset(out []byte, d time.Duration) []byte {
	ms := d.Round(time.Millisecond).Milliseconds()
	if ms < 1000 {
		return append(strconv.AppendInt(out, ms, 10), "ms"...)
	}
	out = strconv.AppendInt(out, ms/1000, 10)
	if ms %= 1000; ms != 0 {
		out = append(out, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
		out = bytes.TrimRight(out, "0")
	}
	return append(out, 's')
}

// tell sets the headers of the limits that the tenant has.
func (m *meter) tell(h http.Header) {
	for i := 0; i < m.told; i++ {
		if m.values[i] != "" {
			h[ratelimitNames[i/3][i%3]] = m.values[i : i+1]
		}
	}
}
