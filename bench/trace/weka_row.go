package trace

import (
	"strconv"
	"time"
)

// wekaRow is one line of a weka file: a session, a sub-agent, or a request
// where kind is empty.
type wekaRow struct {
	session, agent, turn int
	kind                 string
	t, think             time.Duration
	in, out              int
	block, tools, system int
	model, blocks        string
}

func readWekaRow(line *object) (wekaRow, error) {
	row := wekaRow{session: -1, agent: -1, turn: -1, t: -1, think: unknownThink, in: -1, out: -1}
	for {
		name, ok, err := line.name()
		if err != nil {
			return row, err
		}
		if !ok {
			return row, row.check()
		}
		switch name {
		case "session":
			row.session, err = line.count()
		case "agent":
			row.agent, err = line.count()
		case "turn":
			row.turn, err = line.count()
		case "kind":
			row.kind, err = line.text()
		case "t":
			err = line.instant(&row.t, time.Second)
		case "think_s":
			err = line.instant(&row.think, time.Second)
		case "in":
			err = line.tokens(&row.in)
		case "out":
			err = line.tokens(&row.out)
		case "block_size":
			err = line.tokens(&row.block)
		case "tool_tokens":
			err = line.tokens(&row.tools)
		case "system_tokens":
			err = line.tokens(&row.system)
		case "model":
			row.model, err = line.text()
		case "blocks":
			row.blocks, err = line.text()
		default:
			err = line.skip()
		}
		if err != nil {
			return row, err
		}
	}
}

// check looks that all is there that a line of its kind needs.
func (r *wekaRow) check() error {
	switch {
	case r.session < 0:
		return missing("session")
	case r.kind == "session" && r.block == 0:
		return bad("block_size", strconv.Itoa(r.block), "want the tokens of a block")
	case r.kind == "session":
		return nil
	case r.agent < 0:
		return missing("agent")
	case r.kind == "subagent":
		return nil
	case r.kind != "":
		return bad("kind", r.kind, "want session or subagent")
	case r.turn < 0:
		return missing("turn")
	case r.t < 0:
		return missing("t")
	case r.in < 0:
		return missing("in")
	case r.out < 0:
		return missing("out")
	case r.blocks == "":
		return missing("blocks")
	}
	return nil
}
