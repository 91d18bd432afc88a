package trace

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// weka reads recorded sessions of coding agents (kv-cache-tester): a line for
// each session, then its requests and sub-agents. A sub-agent is a conversation
// of its own.
//
// Sessions have no common clock: each starts a random time after the one before
// it in the file. So all of the file is read first; the blocks, a thousand for
// each request, are written out when the request's turn comes.
type weka struct {
	all []wekaRequest
	at  int
}

// wekaRequest is a request with its blocks as runs.
type wekaRequest struct {
	Request
	session uint64
	begins  preface
	runs    []run
}

// run is block numbers that follow each other, both ends included.
type run struct{ from, to uint64 }

func (w *weka) next() (Request, error) {
	if w.at == len(w.all) {
		return Request{}, io.EOF
	}
	q := &w.all[w.at]
	w.at++
	out := q.Request
	out.Blocks = q.blocks()
	q.runs = nil
	return out, nil
}

func newWeka(r *Reader, o Options) (*weka, error) {
	perSecond, pause := o.SessionsPerSecond, o.LongestPause
	if perSecond <= 0 {
		perSecond = DefaultSessionsPerSecond
	}
	if pause == 0 {
		pause = DefaultLongestPause
	}
	dice := rand.New(rand.NewPCG(o.Seed, 0x77656b61))
	w, line := &weka{}, newObject(nil)
	var session *wekaSession
	seen := map[int]bool{}
	starts := time.Duration(0)
	for {
		text, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line.reset(text)
		row, err := readWekaRow(line)
		if err != nil {
			return nil, err
		}
		if row.kind == "session" {
			if seen[row.session] {
				return nil, bad("session", strconv.Itoa(row.session), "a session of this number was there before")
			}
			seen[row.session] = true
			w.all = append(w.all, session.placed(pause)...)
			session = &wekaSession{number: row.session, block: row.block, model: row.model, starts: starts,
				begins: map[int]preface{0: {row.tools, row.system}}}
			starts += time.Duration(dice.ExpFloat64() / perSecond * float64(time.Second))
			continue
		}
		if session == nil || session.number != row.session {
			return nil, bad("session", strconv.Itoa(row.session), "want a line of kind session before what belongs to it")
		}
		if err := session.take(row); err != nil {
			return nil, err
		}
	}
	w.all = append(w.all, session.placed(pause)...)
	slices.SortStableFunc(w.all, func(a, b wekaRequest) int { return cmp.Compare(a.At, b.At) })
	return w, nil
}

// wekaSession is a session that is being read.
type wekaSession struct {
	number, block int
	model         string
	starts        time.Duration
	begins        map[int]preface // by agent
	requests      []wekaRequest   // At counts from the session's start, as recorded
}

// preface is what all prompts of an agent begin with, in tokens.
type preface struct{ tools, system int }

// mostPromptBlocks bounds what one line can make of a few numbers; the longest
// prompts of this trace have 13,000 blocks.
const mostPromptBlocks = 1 << 18

// take adds a request, or what a sub-agent begins with.
func (s *wekaSession) take(row wekaRow) error {
	if row.kind == "subagent" {
		s.begins[row.agent] = preface{row.tools, row.system}
		return nil
	}
	begins, ok := s.begins[row.agent]
	if !ok {
		return bad("agent", strconv.Itoa(row.agent), "want a line of kind subagent before its requests")
	}
	q := wekaRequest{session: uint64(s.number), begins: begins,
		Request: Request{At: row.t, Turn: row.turn, Think: row.think, Prompt: row.in, Output: row.out, BlockTokens: s.block, Class: s.model,
			Conversation: mix(uint64(s.number), uint64(row.agent))}}
	var err error
	q.runs, err = parseRuns(row.blocks, min((row.in+s.block-1)/s.block, mostPromptBlocks))
	s.requests = append(s.requests, q)
	return err
}

// blocks are numbers that hold for the whole trace. Those of tools and system
// prompt are common to all sessions that have as many tokens of both, as far as
// they are whole; others belong to their session.
func (q *wekaRequest) blocks() []uint64 {
	all := make([]uint64, 0, (q.Prompt+q.BlockTokens-1)/q.BlockTokens)
	tools, system := uint64(q.begins.tools), uint64(q.begins.system)
	own := mix(q.session) // a bijection follows: none of a session is another's
	end := uint64(0)      // tokens up to the block's end
	for _, r := range q.runs {
		for n := r.from; n <= r.to; n++ {
			end += uint64(q.BlockTokens)
			switch {
			case end <= tools:
				all = append(all, mix(tools, end))
			case end <= tools+system:
				all = append(all, mix(tools, system, end))
			default:
				all = append(all, mix64(own^n))
			}
		}
	}
	return all
}

// parseRuns reads block numbers like "1-247,260", not more than most.
func parseRuns(text string, most int) ([]run, error) {
	all := make([]run, 0, 1+strings.Count(text, ","))
	for one := range strings.SplitSeq(text, ",") {
		r, ok := parseRun(one)
		if !ok {
			return nil, bad("blocks", one, "want numbers and runs of them, like 1-247,260")
		}
		if r.to-r.from >= uint64(most) {
			return nil, bad("blocks", one, "more blocks than the prompt has, or than %d", mostPromptBlocks)
		}
		most -= int(r.to-r.from) + 1
		all = append(all, r)
	}
	return all, nil
}

func parseRun(text string) (r run, ok bool) {
	first, last, is := strings.Cut(text, "-")
	if !is {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 62)
	if err != nil {
		return run{}, false
	}
	to, err := strconv.ParseUint(last, 10, 62)
	return run{from, to}, err == nil && from <= to
}

// placed are the session's requests on the trace's clock, long pauses cut.
func (s *wekaSession) placed(pause time.Duration) []wekaRequest {
	if s == nil {
		return nil
	}
	slices.SortStableFunc(s.requests, func(a, b wekaRequest) int { return cmp.Compare(a.At, b.At) })
	cut, before := time.Duration(0), time.Duration(0)
	for i := range s.requests {
		q := &s.requests[i]
		gap := q.At - before
		before = q.At
		if pause > 0 {
			cut += max(0, gap-pause)
			q.Think = min(q.Think, pause)
		}
		q.At += s.starts - cut
	}
	return s.requests
}
