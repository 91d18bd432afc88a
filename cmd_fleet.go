package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

func newFleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show the gateways that plan together",
		Long: `Gateways with the same [fleet] in their files tell one of them, the leader, what
their clients ask for and what they see of engines; it plans for all. When it
goes another leads within 10 s, and until then all keep their last table.`,
		Example: "  penstock fleet status",
	}
	cmd.AddCommand(newFleetStatusCommand())
	return cmd
}

// fleetStatus is what fleet status shows of GET /fleet.
type fleetStatus struct {
	Leader   string  `json:"leader"`
	Epoch    uint64  `json:"epoch"`
	Version  uint64  `json:"version"`
	PlanAge  float64 `json:"plan_age_ms"`
	Driver   string  `json:"driver"`
	Store    string  `json:"store"`
	Partial  bool    `json:"partial"`
	Gateways []struct {
		Name   string  `json:"name"`
		Source string  `json:"source"`
		Age    float64 `json:"age_ms"`
	} `json:"gateways"`
}

func newFleetStatusCommand() *cobra.Command {
	var admin string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show who leads, in which epoch, how old the plan is and who reports",
		Long: `Ask a running gateway, any of the fleet, who leads and who reports. It asks the
leader in turn; where that does not answer, it tells what it knows itself.

EPOCH grows with every leader, VERSION with every plan of an epoch. AGE is that
of a gateway's last report: they come once a second, and after 3.5 s without one
a gateway's demand no longer counts.`,
		Example: `  penstock fleet status
  penstock fleet status --admin 127.0.0.1:9081
  penstock fleet status --json | jq -r .leader`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := askAdmin(cmd.Context(), admin, "/fleet")
			if errors.Is(err, errNoSuch) {
				return notAdmin(admin)
			}
			if err != nil {
				return err
			}
			var status fleetStatus
			if err := decodeAnswer(admin, body, &status); err != nil {
				return err
			}
			if asJSON {
				return printDocument(cmd, body)
			}
			return printFleet(cmd.OutOrStdout(), &status)
		},
	}
	addAdminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the gateway's JSON document")
	return cmd
}

func printFleet(w io.Writer, s *fleetStatus) error {
	leader := plainText(s.Leader)
	if leader == "" {
		leader = "nobody: every gateway goes on with its last table"
	}
	age := time.Duration(s.PlanAge * float64(time.Millisecond)).Round(100 * time.Millisecond)
	if _, err := fmt.Fprintf(w, "Leader   %s\nEpoch    %d\nVersion  %d, confirmed %s ago\nStore    %s, %s\n\n", leader, s.Epoch, s.Version, age, plainText(s.Driver), plainText(s.Store)); err != nil {
		return err
	}
	t := newTable(w, "GATEWAY", "SOURCE", "AGE", "ROLE")
	for _, g := range s.Gateways {
		role := "follows"
		if g.Name == s.Leader {
			role = "leads"
		}
		t.row(g.Name, g.Source, time.Duration(g.Age*float64(time.Millisecond)).Round(100*time.Millisecond).String(), role)
	}
	if err := t.print(); err != nil {
		return err
	}
	if s.Partial {
		_, err := fmt.Fprintln(w, "\nThe leader does not answer: these are those that this gateway knows of itself.")
		return err
	}
	return nil
}
