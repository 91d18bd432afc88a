package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// engineRow is what engines shows of one element of GET /engines.
type engineRow struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail"`
	Since    time.Time `json:"since"`
	InFlight int64     `json:"in_flight"`
	Needs    string    `json:"attention"`
	Models   []string  `json:"models"`
	URL      string    `json:"url"`
	Dialect  string    `json:"dialect"`
	By       string    `json:"dialect_by"`
	Version  string    `json:"version"`
}

func newEnginesCommand() *cobra.Command {
	var admin string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "engines",
		Short: "Show the engines of a running gateway and their state",
		Long: `Ask a running gateway what it knows of its engines. "ready" takes traffic; any
other state says why it does not, and since when. With a command it takes an
engine out and back: cordon, drain, uncordon.

IN FLIGHT counts the requests that this gateway has on the engine now. MODELS
are those configured, else what the engine lists. DIALECT is the kind of engine
with its version where it tells, and KNOWN BY what gave it away.`,
		Example: `  penstock engines
  penstock engines --admin 127.0.0.1:9081
  penstock engines --json | jq -r '.[] | select(.state != "ready") | .name'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; there are %s, each with the name of one ENGINE", args[0], strings.Join(namesOf(cmd.Commands()), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := askAdmin(cmd.Context(), admin, "/engines")
			if errors.Is(err, errNoSuch) {
				return notAdmin(admin)
			}
			if err != nil {
				return err
			}
			var rows []engineRow
			if err := decodeAnswer(admin, body, &rows); err != nil {
				return err
			}
			if asJSON {
				return printDocument(cmd, body)
			}
			return printEngines(cmd.OutOrStdout(), rows, time.Now())
		},
	}
	addAdminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the gateway's JSON document")
	cmd.AddCommand(newCordonCommand(), newDrainCommand(), newUncordonCommand())
	return cmd
}

func printEngines(w io.Writer, rows []engineRow, now time.Time) error {
	t := newTable(w, "ENGINE", "STATE", "REASON", "SINCE", "IN FLIGHT", "MODELS", "URL", "DIALECT", "KNOWN BY")
	ready := 0
	for _, r := range rows {
		if r.State == "ready" {
			ready++
		}
		t.row(r.Name, r.State, withDetail(r.Reason, r.Detail), ago(r.Since, now), strconv.FormatInt(r.InFlight, 10),
			someOf(r.Models), r.URL, strings.TrimSpace(r.Dialect+" "+r.Version), r.By)
	}
	if err := t.print(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\n%d of %d ready\n", ready, len(rows)); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Needs == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s needs attention: %s\n", r.Name, r.Needs); err != nil {
			return err
		}
	}
	return nil
}

// withDetail is a reason with what lies behind it.
func withDetail(reason, detail string) string {
	if detail == "" {
		return reason
	}
	return reason + ": " + detail
}

// someOf lists the first models; an engine with many adapters has hundreds.
func someOf(models []string) string {
	const shown = 3
	if len(models) <= shown {
		return strings.Join(models, ",")
	}
	return strings.Join(models[:shown], ",") + fmt.Sprintf(" and %d more", len(models)-shown)
}
