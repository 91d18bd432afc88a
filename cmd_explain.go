package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"penstock/balancer"
)

func newExplainCommand() *cobra.Command {
	var admin string
	var ofTable, asJSON, replay bool
	cmd := &cobra.Command{
		Use:   "explain REQUEST-ID | --table",
		Short: "Say why a request went where it went, or why the table is as it is",
		Long: `Ask a running gateway for the record of one request: where its affinity key came
from and which slot that is, which engines could have served it, how loaded each was
against its bound, which was chosen and why, each attempt, and how it ended; and
which engines a filter left out, by what is known of them now. REQUEST-ID is the
x-request-id header of the answer, also of a refusal by the gateway once it had
found the model. A gateway keeps the latest requests only.

With --replay, the decision is made again from the record: the bound of each engine
that was looked at, from its share, what was in flight, its cap and what protection
had left of it, and which of them it allows; the answer must be the same.

With --table, the routing table in use: the weight of each engine for each source
and class and why it is so: the way there, the time there at the planned load, the
price of what it takes from others, which engine would be next and for how much
more; what is refused; what changed since the last tables and why; and the
certificate, where a solver made the weights.`,
		Example: `  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
    -H 'X-Request-Id: try-1' -d '{"model":"m","messages":[{"role":"user","content":"hello"}]}'
  penstock explain try-1
  penstock explain try-1 --replay
  penstock explain --table
  penstock explain --table --json | jq '.weights[] | select(.weight > 0.5)'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case ofTable && len(args) > 0:
				return usagef("want either REQUEST-ID or --table")
			case ofTable && replay:
				return usagef("want --replay with a REQUEST-ID: a table is recomputed from its problem and prices")
			case !ofTable && (len(args) != 1 || args[0] == ""):
				return usagef("want one REQUEST-ID (the x-request-id header of an answer), or --table")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ofTable {
				return explainTable(cmd, admin, asJSON)
			}
			return explainRequest(cmd, admin, args[0], replay, asJSON)
		},
	}
	addAdminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&ofTable, "table", false, "explain the routing table instead of a request")
	cmd.Flags().BoolVar(&replay, "replay", false, "decide again from the record, step by step; fails where the answer differs")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the gateway's JSON document")
	return cmd
}

func explainRequest(cmd *cobra.Command, admin, id string, replay, asJSON bool) error {
	body, err := askAdmin(cmd.Context(), admin, requestPath(id))
	if errors.Is(err, errNoSuch) {
		return fmt.Errorf("the gateway at %s has no record of request %s: it keeps the latest requests only; or another gateway served it", admin, plainText(id))
	}
	if err != nil {
		return err
	}
	var record requestRecord
	if err := decodeAnswer(admin, body, &record); err != nil {
		return err
	}
	switch {
	case replay:
		return record.replay(cmd, asJSON)
	case asJSON:
		return printDocument(cmd, body)
	}
	return record.print(cmd.OutOrStdout())
}

func explainTable(cmd *cobra.Command, admin string, asJSON bool) error {
	body, err := askAdmin(cmd.Context(), admin, "/table")
	if errors.Is(err, errNoSuch) {
		return notAdmin(admin)
	}
	if err != nil {
		return err
	}
	var table routingTable
	if err := decodeAnswer(admin, body, &table); err != nil {
		return err
	}
	if asJSON {
		return printDocument(cmd, body)
	}
	return table.print(cmd.OutOrStdout())
}

// requestRecord is what explain shows of GET /requests/{id}. A pointer is nil
// where the gateway does not say.
type requestRecord struct {
	ID         string         `json:"id"`
	Time       time.Time      `json:"time"`
	Model      string         `json:"model"`
	Source     string         `json:"source"`
	Class      string         `json:"class"`
	Tenant     string         `json:"tenant"`
	Priority   string         `json:"priority"`
	KeySource  string         `json:"key_source"`
	Key        scalar         `json:"key"`
	Engine     string         `json:"engine"`
	Why        string         `json:"why"`
	Rule       string         `json:"rule"`
	Table      uint64         `json:"table"`
	Planned    *planned       `json:"planned"`
	Slot       *slotPlace     `json:"slot"`
	Candidates []candidate    `json:"candidates"`
	Excluded   []excluded     `json:"excluded"`
	Attempts   []attempt      `json:"attempts"`
	Outcome    string         `json:"outcome"`
	Status     int            `json:"status"`
	Code       string         `json:"code"`
	TTFT       *float64       `json:"ttft_ms"`
	Total      *float64       `json:"total_ms"`
	Usage      map[string]any `json:"usage"`
	Stream     bool           `json:"stream"`
}

type candidate struct {
	Engine   string   `json:"engine"`
	Weight   *float64 `json:"weight"`
	InFlight *float64 `json:"in_flight"`
	Bound    *float64 `json:"bound"`
	State    string   `json:"state"`
	Cost     *float64 `json:"cost_ms"`

	// What the bound follows from; nil where an older gateway answers.
	Share     *float64 `json:"share"`
	Component *int64   `json:"component_in_flight"`
	Cap       *int64   `json:"cap"`
	Factor    *float64 `json:"factor"`
}

// slotPlace is the slot of the request's key, in the table in use now.
type slotPlace struct {
	Index     uint64 `json:"index"`
	Of        uint64 `json:"of"`
	Engine    string `json:"engine"`
	Alternate string `json:"alternate"`
	Table     uint64 `json:"table"`
}

// excluded is an engine that a filter leaves out.
type excluded struct {
	Engine string `json:"engine"`
	Why    string `json:"why"`
}

type planned struct {
	Share    float64 `json:"share"`
	RunnerUp string  `json:"runner_up"`
	Dearer   float64 `json:"runner_up_ms"`
}

type attempt struct {
	Engine  string   `json:"engine"`
	Outcome string   `json:"outcome"`
	Cause   string   `json:"cause"`
	Ms      *float64 `json:"ms"`
}

// routingTable is what explain --table shows of GET /table.
type routingTable struct {
	Version     uint64        `json:"version"`
	Reason      string        `json:"reason"`
	Policy      string        `json:"policy"`
	Rule        string        `json:"rule"`
	Certificate *certificate  `json:"certificate"`
	Weights     []weight      `json:"weights"`
	Shed        []tableShed   `json:"shed"`
	Plan        *tablePlan    `json:"plan"`
	Changes     []tableChange `json:"changes"`

	Feedback *balancer.FeedbackReport `json:"feedback"`
}

type certificate struct {
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	Gap       float64 `json:"gap"`
	Damping   float64 `json:"damping"`
}

type weight struct {
	Source string  `json:"source"`
	Class  string  `json:"class"`
	Engine string  `json:"engine"`
	Weight float64 `json:"weight"`
}

type tableShed struct {
	Source   string  `json:"source"`
	Class    string  `json:"class"`
	Priority string  `json:"priority"`
	Fraction float64 `json:"fraction"`
}

type tablePlan struct {
	Epoch        uint64       `json:"epoch"`
	Version      uint64       `json:"version"`
	Leads        bool         `json:"leads"`
	Uncalibrated []string     `json:"uncalibrated"`
	Engines      []planEngine `json:"engines"`
	Rows         []planRow    `json:"rows"`
}

type planEngine struct {
	Engine        string  `json:"engine"`
	Load          float64 `json:"load"`
	Capacity      float64 `json:"capacity"`
	Latency       float64 `json:"latency_ms"`
	Price         float64 `json:"price_ms"`
	CapacityPrice float64 `json:"capacity_price_ms"`
}

type planRow struct {
	Source string   `json:"source"`
	Class  string   `json:"class"`
	Why    *planWhy `json:"why"`
}

type planWhy struct {
	Options []planOption `json:"options"`
	Text    []string     `json:"text"`
}

type planOption struct {
	Engine   string  `json:"engine"`
	Weight   float64 `json:"weight"`
	Network  float64 `json:"network_ms"`
	Latency  float64 `json:"latency_ms"`
	Price    float64 `json:"price_ms"`
	Marginal float64 `json:"marginal_ms"`
}

type tableChange struct {
	Version uint64      `json:"version"`
	At      time.Time   `json:"at"`
	Reason  string      `json:"reason"`
	Causes  []string    `json:"causes"`
	Moves   []tableMove `json:"moves"`
}

type tableMove struct {
	Class   string  `json:"class"`
	Share   float64 `json:"share"`
	Slots   float64 `json:"slots"`
	Engines []struct {
		Engine string  `json:"engine"`
		From   float64 `json:"from"`
		To     float64 `json:"to"`
	} `json:"engines"`
}

// scalar is a JSON text or number as text, whichever the gateway prefers.
type scalar string

func (s *scalar) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*s = scalar(text)
	} else if string(b) != "null" {
		*s = scalar(b)
	}
	return nil
}
