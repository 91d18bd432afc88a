package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// The commands of engines that give one engine an order. They return when the
// order holds: from then on the gateway starts nothing new on the engine.

func newCordonCommand() *cobra.Command {
	return orderCommand("cordon", &cobra.Command{
		Short: "Let an engine finish what it has and give it nothing new",
		Long: `Take an engine out for a while. Requests that run on it go on to their end; new
ones go to other engines, those of its conversations too, which come back with
it. The order holds over reloads until uncordon; over a restart of the gateway
only where it has a state_dir.`,
		Example: "  penstock engines cordon a1",
	}, new(time.Duration))
}

func newUncordonCommand() *cobra.Command {
	return orderCommand("uncordon", &cobra.Command{
		Short:   "Take back cordon or drain: the engine's health decides again",
		Long:    "End an order of cordon or drain. The engine takes traffic again if it is healthy.",
		Example: "  penstock engines uncordon a1",
	}, new(time.Duration))
}

func newDrainCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Short: "Empty an engine: nothing new, and its conversations settle elsewhere",
		Long: `Take an engine out for good, before it is stopped. Requests that run on it go on
to their end; its conversations settle on other engines and do not come back.
Its state is "draining" while requests of this gateway run on it, then
"drained". Other gateways that send to it have to be told as well.`,
		Example: `  penstock engines drain a1 --wait 10m && systemctl stop vllm`,
	}
	cmd.Flags().Var((*spanFlag)(&wait), "wait", "wait so long for it to be drained; exit 1 if it is not by then")
	return orderCommand("drain", cmd, &wait)
}

// orderCommand completes a command with what all three share.
// wait is for drain.
func orderCommand(order string, cmd *cobra.Command, wait *time.Duration) *cobra.Command {
	var admin string
	var asJSON bool
	cmd.Use = order + " ENGINE"
	cmd.Args = exactly(1, "one ENGINE")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return engineNames(cmd.Context(), admin), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body, row, err := orderEngine(cmd.Context(), admin, args[0], order)
		if err != nil {
			return err
		}
		if *wait > 0 {
			if body, row, err = awaitDrained(cmd.Context(), admin, row.Name, *wait); err != nil {
				return err
			}
		}
		if asJSON {
			return printDocument(cmd, body)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is %s, %d in flight\n", plainText(row.Name), plainText(row.State), row.InFlight)
		return err
	}
	addAdminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the engine as the gateway's JSON document")
	return cmd
}

func orderEngine(ctx context.Context, admin, name, order string) (json.RawMessage, engineRow, error) {
	var row engineRow
	body, err := callAdmin(ctx, http.MethodPost, admin, "/engines/"+url.PathEscape(name)+"/"+order)
	if errors.Is(err, errNoSuch) {
		return nil, row, fmt.Errorf("the gateway at %s has no engine %q; 'penstock engines' lists them", admin, name)
	}
	if err == nil {
		err = decodeAnswer(admin, body, &row)
	}
	return body, row, err
}

// awaitDrained asks until the engine is drained. An engine that left the fleet
// meanwhile, or whose order was taken back, ends the wait as a failure.
func awaitDrained(ctx context.Context, admin, name string, wait time.Duration) (json.RawMessage, engineRow, error) {
	const every = 250 * time.Millisecond
	for end := time.Now().Add(wait); ; {
		body, row, err := oneEngine(ctx, admin, name)
		left := time.Until(end)
		switch {
		case err != nil || row.State == "drained":
			return body, row, err
		case row.State != "draining":
			return nil, row, fmt.Errorf("%s is %s: its drain was taken back", name, plainText(row.State))
		case left <= 0:
			return nil, row, fmt.Errorf("%s is still draining after %s, %d in flight", name, wait, row.InFlight)
		}
		select {
		case <-ctx.Done():
			return nil, row, ctx.Err()
		case <-time.After(min(every, left)):
		}
	}
}

func oneEngine(ctx context.Context, admin, name string) (json.RawMessage, engineRow, error) {
	bodies, err := listEngines(ctx, admin)
	if err != nil {
		return nil, engineRow{}, err
	}
	for _, body := range bodies {
		var row engineRow
		if err := decodeAnswer(admin, body, &row); err != nil {
			return nil, row, err
		}
		if row.Name == name {
			return body, row, nil
		}
	}
	return nil, engineRow{}, fmt.Errorf("the gateway at %s no longer has an engine %q", admin, name)
}

func listEngines(ctx context.Context, admin string) (rows []json.RawMessage, err error) {
	body, err := askAdmin(ctx, admin, "/engines")
	if errors.Is(err, errNoSuch) {
		return nil, notAdmin(admin)
	}
	if err == nil {
		err = decodeAnswer(admin, body, &rows)
	}
	return rows, err
}

// engineNames completes an argument; without a gateway there is nothing to complete.
func engineNames(ctx context.Context, admin string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	rows, err := listEngines(ctx, admin)
	if err != nil {
		return nil
	}
	for _, raw := range rows {
		var row engineRow
		if json.Unmarshal(raw, &row) == nil {
			names = append(names, row.Name)
		}
	}
	return names
}
