package trace

import "time"

// azure reads Azure's traces of LLM inference (2023, Splitwise; 2024, DynamoLLM),
// as they are published (TIMESTAMP as date and time, in 2024 with a zone) or with
// seconds from the first row.
type azure struct {
	t                  *table
	at, prompt, output int
	dated              bool
	first              time.Time
}

func newAzure(r *Reader) (*azure, error) {
	head, err := r.lines.peek()
	if err != nil {
		return nil, err
	}
	columns := []string{"arrival_s", "input_tokens", "output_tokens"}
	dated := len(head) > 0 && head[0] == 'T'
	if dated {
		columns = []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
	}
	t, err := newTable(r.lines, columns...)
	if err != nil {
		return nil, err
	}
	return &azure{t: t, at: t.index(columns[0]), prompt: t.index(columns[1]), output: t.index(columns[2]), dated: dated}, nil
}

func (a *azure) next() (q Request, err error) {
	if err := a.t.next(); err != nil {
		return q, err
	}
	q.Think = unknownThink
	if q.At, err = a.when(); err != nil {
		return q, err
	}
	if q.Prompt, err = a.t.tokens(a.prompt); err != nil {
		return q, err
	}
	q.Output, err = a.t.tokens(a.output)
	return q, err
}

func (a *azure) when() (time.Duration, error) {
	if !a.dated {
		v, err := a.t.number(a.at)
		if err != nil {
			return 0, err
		}
		return instant("arrival_s", v, time.Second)
	}
	text := a.t.text(a.at)
	at, err := time.Parse("2006-01-02 15:04:05", text) // a fraction may follow
	if err != nil {
		at, err = time.Parse("2006-01-02 15:04:05Z07:00", text)
	}
	if err != nil {
		return 0, bad("TIMESTAMP", text, "want a time as 2023-11-16 18:15:46.6805900")
	}
	if a.first.IsZero() {
		a.first = at
	}
	if at.Before(a.first) {
		return 0, bad("TIMESTAMP", text, "before the first row: want rows in time order")
	}
	return at.Sub(a.first), nil
}
