package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"penstock/config"
	"penstock/engine"
)

func newCheckCommand() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Check a configuration file and name every fault",
		Long: `Check a configuration file as serve and a reload would, without starting
anything or asking any engine. Every fault is named, not only the first, each
with file, line, key and value:

  penstock.toml:12: limits.stall = "abc": want a duration like "30s"

A file without a fault is summed up: the listeners, then the engines as they
would be used. Exit code 0 if serve would take the file, else 1.`,
		Example: `  penstock check --config penstock.toml
  penstock check --config penstock.toml --json | jq -r '.faults[].line'`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadConfig(path, "check")
			faults, faulty := errors.AsType[config.Faults](err)
			switch {
			case asJSON && (err == nil || faulty):
				if printed := printJSON(cmd, newCheckReport(path, file, faults)); printed != nil {
					return printed
				}
			case err == nil:
				return printSummary(cmd.OutOrStdout(), file)
			}
			return faultsError(path, err)
		},
	}
	addConfigFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document, with faults or without")
	return cmd
}

// addConfigFlag is --config as every command that reads a file has it.
func addConfigFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "", "the configuration `FILE`; config.toml.example explains every key")
	if err := cmd.MarkFlagFilename("config", "toml"); err != nil {
		panic(err) // the flag has just been defined
	}
}

// loadConfig reads the file of --config for a command. A command without the
// flag is called wrongly: a file that is found by chance may be the wrong one.
func loadConfig(path, command string) (*config.File, error) {
	if path == "" {
		return nil, usagef("%s needs a configuration: --config FILE, such as --config penstock.toml", command)
	}
	return config.Load(path)
}

// faultsError is how a command ends that could not use its file: each fault on
// a line of its own.
func faultsError(path string, err error) error {
	faults, ok := errors.AsType[config.Faults](err)
	switch {
	case !ok:
		return err
	case len(faults) == 1:
		return fmt.Errorf("%s has a fault:\n%w", path, err)
	}
	return fmt.Errorf("%s has %d faults:\n%w", path, len(faults), err)
}

// checkReport is what check --json prints.
type checkReport struct {
	File    string         `json:"file"`
	OK      bool           `json:"ok"`
	Faults  config.Faults  `json:"faults"`
	Gateway *checkGateway  `json:"gateway,omitempty"`
	Engines []checkEngines `json:"engines,omitempty"`
}

type checkGateway struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Listen string `json:"listen"`
	Admin  string `json:"admin"`
}

type checkEngines struct {
	Name        string              `json:"name"`
	URL         string              `json:"url"`
	Cluster     string              `json:"cluster"`
	Dialect     string              `json:"dialect"`
	Models      []string            `json:"models"` // null: asked from the engine
	Labels      map[string][]string `json:"labels,omitempty"`
	Capacity    *float64            `json:"capacity"` // null: not configured
	MaxInFlight int                 `json:"max_in_flight,omitempty"`
}

func newCheckReport(path string, f *config.File, faults config.Faults) checkReport {
	r := checkReport{File: path, OK: f != nil, Faults: faults}
	if faults == nil {
		r.Faults = config.Faults{}
	}
	if f == nil {
		return r
	}
	r.Gateway = &checkGateway{f.Gateway.Name, f.Gateway.Source, f.Listen.Address, f.Admin.Address}
	for _, e := range f.Engines {
		r.Engines = append(r.Engines, checkEngines{e.Name, e.URL, e.Cluster, dialectOf(e), e.Models, e.Labels, e.Capacity, e.MaxInFlight})
	}
	return r
}

func dialectOf(e engine.Config) string { return cmp.Or(e.Dialect, engine.DialectAuto) }

// printSummary shows what the file comes to.
func printSummary(w io.Writer, f *config.File) error {
	fmt.Fprintf(w, "gateway %s in %s\n", f.Gateway.Name, f.Gateway.Source)
	fmt.Fprintf(w, "clients at http://%s, operators at http://%s\n\n", f.Listen.Address, f.Admin.Address)
	table := newTable(w, "ENGINE", "URL", "CLUSTER", "DIALECT", "MODELS", "CAPACITY", "MAX IN FLIGHT")
	for _, e := range f.Engines {
		capacity, most, models := "not given", "learned", "asked from it"
		if e.Capacity != nil {
			capacity = strconv.FormatFloat(*e.Capacity, 'g', -1, 64) + "/s"
		}
		if e.MaxInFlight > 0 {
			most = strconv.Itoa(e.MaxInFlight)
		}
		if e.Models != nil {
			models = strings.Join(e.Models, ",")
		}
		table.row(e.Name, e.URL, e.Cluster, dialectOf(e), models, capacity, most)
	}
	return table.print()
}
