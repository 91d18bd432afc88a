package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newExplainCommand() *cobra.Command {
	var admin string
	var ofTable, asJSON bool
	cmd := &cobra.Command{
		Use:   "explain REQUEST-ID | --table",
		Short: "Say why a request went where it went, or why the table is as it is",
		Long: `Ask a running gateway for the record of one request: where its affinity key came
from, which engines could have served it, how loaded each was against its bound,
which was chosen and why, each attempt, and how it ended. REQUEST-ID is the
x-request-id header of the answer. A gateway keeps the latest requests only.

With --table, the routing table in use: the weight of each engine for each source
and class, why this table replaced the last, and its certificate where a solver
made it.`,
		Example: `  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
    -H 'X-Request-Id: try-1' -d '{"model":"m","messages":[{"role":"user","content":"hello"}]}'
  penstock explain try-1
  penstock explain --table
  penstock explain --table --json | jq '.weights[] | select(.weight > 0.5)'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case ofTable && len(args) > 0:
				return usagef("want either REQUEST-ID or --table")
			case !ofTable && (len(args) != 1 || args[0] == ""):
				return usagef("want one REQUEST-ID (the x-request-id header of an answer), or --table")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ofTable {
				return explainTable(cmd, admin, asJSON)
			}
			return explainRequest(cmd, admin, args[0], asJSON)
		},
	}
	addAdminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&ofTable, "table", false, "explain the routing table instead of a request")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the gateway's JSON document")
	return cmd
}

func explainRequest(cmd *cobra.Command, admin, id string, asJSON bool) error {
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
	if asJSON {
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
	KeySource  string         `json:"key_source"`
	Key        scalar         `json:"key"`
	Engine     string         `json:"engine"`
	Why        string         `json:"why"`
	Candidates []candidate    `json:"candidates"`
	Alternate  string         `json:"alternate"`
	Attempts   []attempt      `json:"attempts"`
	Outcome    string         `json:"outcome"`
	Status     int            `json:"status"`
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
}

type attempt struct {
	Engine  string   `json:"engine"`
	Outcome string   `json:"outcome"`
	Cause   string   `json:"cause"`
	Ms      *float64 `json:"ms"`
}

// routingTable is what explain --table shows of GET /table.
type routingTable struct {
	Version     uint64       `json:"version"`
	Reason      string       `json:"reason"`
	Policy      string       `json:"policy"`
	Certificate *certificate `json:"certificate"`
	Weights     []weight     `json:"weights"`
}

type certificate struct {
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	Gap       float64 `json:"gap"`
}

type weight struct {
	Source string  `json:"source"`
	Class  string  `json:"class"`
	Engine string  `json:"engine"`
	Weight float64 `json:"weight"`
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
