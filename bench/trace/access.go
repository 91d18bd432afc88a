package trace

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// access reads a gateway's own log: the lines with "msg":"request". A line is
// written when its request ends, so all of the file is read and put in the
// order of arrival. Requests whose lengths the log does not have (shed ones,
// failed ones, answers without usage) are left out.
type access struct {
	all []Request
	at  int
}

func (a *access) next() (Request, error) {
	if a.at == len(a.all) {
		return Request{}, io.EOF
	}
	a.at++
	return a.all[a.at-1], nil
}

func newAccess(r *Reader) (*access, error) {
	a, line := &access{}, newObject(nil)
	type arrived struct {
		at, end time.Time
		q       Request
	}
	var all []arrived
	for {
		text, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line.reset(text)
		row, err := readAccessRow(line)
		if err != nil {
			return nil, err
		}
		if why := row.unfit(); why != "" {
			r.skip(why)
			continue
		}
		q := Request{Think: unknownThink, Prompt: row.prompt, Output: row.output, Class: row.model, Priority: row.priority}
		if row.conversation != "" {
			q.Conversation = mixText(row.conversation)
		}
		all = append(all, arrived{row.end.Add(-row.took), row.end, q})
	}
	slices.SortStableFunc(all, func(x, y arrived) int { return x.at.Compare(y.at) })
	type turn struct {
		number int
		end    time.Time
	}
	turns := map[uint64]turn{}
	for _, x := range all {
		x.q.At = x.at.Sub(all[0].at)
		if x.q.Conversation != 0 {
			before, later := turns[x.q.Conversation]
			if later {
				x.q.Turn = before.number + 1
				x.q.Think = max(0, x.at.Sub(before.end))
			}
			turns[x.q.Conversation] = turn{x.q.Turn, x.end}
		}
		a.all = append(a.all, x.q)
	}
	return a, nil
}

// accessRow is what is read of one line.
type accessRow struct {
	msg, model, priority, outcome string
	conversation                  string
	end                           time.Time
	took                          time.Duration
	prompt, output                int
}

func readAccessRow(line *object) (row accessRow, err error) {
	row.took = -1
	for {
		name, ok, err := line.name()
		if err != nil {
			return row, err
		}
		if !ok {
			break
		}
		switch name {
		case "time":
			var text string
			if text, err = line.text(); err == nil {
				if row.end, err = time.Parse(time.RFC3339Nano, text); err != nil {
					err = bad(name, text, "want a time as 2026-11-30T16:00:00.5Z")
				}
			}
		case "msg":
			row.msg, err = line.text()
		case "model":
			row.model, err = line.text()
		case "priority":
			row.priority, err = line.text()
		case "outcome":
			row.outcome, err = line.text()
		case "conversation":
			row.conversation, err = line.text()
		case "duration_ms":
			err = line.instant(&row.took, time.Millisecond)
		case "prompt_tokens":
			err = line.tokens(&row.prompt)
		case "completion_tokens":
			err = line.tokens(&row.output)
		default:
			err = line.skip()
		}
		if err != nil {
			return row, err
		}
	}
	switch {
	case row.msg != "request":
		return row, nil
	case row.end.IsZero():
		return row, missing("time")
	case row.took < 0:
		return row, missing("duration_ms")
	}
	return row, nil
}

// unfit says why a line is no request to replay; empty: it is one.
func (r *accessRow) unfit() string {
	switch {
	case r.msg != "request":
		return "another line of the log"
	case r.prompt == 0 && r.output == 0:
		return "outcome " + cmp.Or(strings.ToLower(r.outcome), "unknown") + ", without numbers of tokens"
	}
	return ""
}

func mixText(s string) uint64 {
	h := uint64(len(s))
	for i := range len(s) {
		h = mix64(h ^ uint64(s[i]))
	}
	return max(h, 1)
}
