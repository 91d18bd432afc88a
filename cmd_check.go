package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"penstock/config"
	"penstock/engine"
	"penstock/protect"
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
would be used, with those that the files of discovery.file_sd list now. A fault
in one of these counts too, although serve would start without their engines;
names of discovery.dns are not looked up. Exit code 0 if all is well, else 1.`,
		Example: `  penstock check --config penstock.toml
  penstock check --config penstock.toml --json | jq -r '.faults[].line'`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadConfig(path, "check")
			faults, faulty := errors.AsType[config.Faults](err)
			found := checkDiscovery(path, file)
			switch {
			case asJSON && (err == nil || faulty):
				if printed := printJSON(cmd, newCheckReport(path, file, faults, found)); printed != nil {
					return printed
				}
			case err == nil:
				if printed := printSummary(cmd.OutOrStdout(), file, found); printed != nil {
					return printed
				}
			}
			return errors.Join(faultsError(path, err), found.err())
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
	Found   *foundReport   `json:"discovery,omitempty"`
	Tenants []checkTenants `json:"tenants,omitempty"`
	Notes   []string       `json:"notes,omitempty"` // what is no fault and hardly meant
}

type checkGateway struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Listen string `json:"listen"`
	TLS    bool   `json:"tls"`
	Admin  string `json:"admin"`

	Metrics string `json:"metrics,omitempty"`
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

type checkTenants struct {
	Name            string              `json:"name"`
	Keys            int                 `json:"keys"`
	Priority        string              `json:"priority"`
	Require         map[string][]string `json:"require,omitempty"`
	Rate            *float64            `json:"rate"`              // null: unlimited
	TokensPerMinute *float64            `json:"tokens_per_minute"` // null: unlimited
}

func newCheckReport(path string, f *config.File, faults config.Faults, found *foundReport) checkReport {
	r := checkReport{File: path, OK: f != nil && found.err() == nil, Faults: faults, Found: found}
	if faults == nil {
		r.Faults = config.Faults{}
	}
	if f == nil {
		return r
	}
	r.Gateway = &checkGateway{Name: f.Gateway.Name, Source: f.Gateway.Source, Listen: f.Listen.Address, TLS: f.Listen.TLS(),
		Admin: f.Admin.Address, Metrics: f.Admin.MetricsAddress}
	for _, e := range slices.Concat(f.Engines, found.engines()) {
		r.Engines = append(r.Engines, checkEngines{e.Name, e.URL, e.Cluster, dialectOf(e), e.Models, e.Labels, e.Capacity, e.MaxInFlight})
	}
	r.Tenants = tenantRows(f)
	r.Notes = sameServers(slices.Concat(f.Engines, found.engines()))
	return r
}

// sameServers tells of engines that are one server: it would get the share of
// each, and look twice as strong as it is.
func sameServers(engines []engine.Config) (notes []string) {
	first := map[string]string{}
	for _, e := range engines {
		url := strings.ToLower(strings.TrimRight(e.URL, "/"))
		if other, twice := first[url]; twice {
			notes = append(notes, fmt.Sprintf("%s and %s have the same url: what that server carries counts twice", other, e.Name))
		} else {
			first[url] = e.Name
		}
	}
	return notes
}

func tenantRows(f *config.File) (rows []checkTenants) {
	for _, t := range f.Tenants {
		rows = append(rows, checkTenants{t.Name, len(t.KeyHash), cmp.Or(t.Priority, protect.Standard.String()), t.Require, t.Rate, t.TokensPerMinute})
	}
	return rows
}

func dialectOf(e engine.Config) string { return cmp.Or(e.Dialect, engine.DialectAuto) }

// printSummary shows what the file comes to.
func printSummary(w io.Writer, f *config.File, found *foundReport) error {
	fmt.Fprintf(w, "gateway %s in %s\n", f.Gateway.Name, f.Gateway.Source)
	scheme, scrapers := "http", ""
	if f.Listen.TLS() {
		scheme = "https"
	}
	if f.Admin.MetricsAddress != "" {
		scrapers = ", scrapers at http://" + f.Admin.MetricsAddress
	}
	fmt.Fprintf(w, "clients at %s://%s, operators at http://%s%s\n\n", scheme, f.Listen.Address, f.Admin.Address, scrapers)
	table := newTable(w, "ENGINE", "URL", "CLUSTER", "DIALECT", "MODELS", "CAPACITY", "MAX IN FLIGHT")
	for _, e := range slices.Concat(f.Engines, found.engines()) {
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
	if err := table.print(); err != nil {
		return err
	}
	for _, note := range sameServers(slices.Concat(f.Engines, found.engines())) {
		fmt.Fprintln(w, "note: "+plainText(note))
	}
	if err := printTenants(w, tenantRows(f)); err != nil {
		return err
	}
	return found.print(w)
}

// tenantsShown bounds the list for people; --json has all.
const tenantsShown = 50

func printTenants(w io.Writer, tenants []checkTenants) error {
	if len(tenants) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := newTable(w, "TENANT", "KEYS", "PRIORITY", "REQUIRES", "REQUESTS", "TOKENS")
	number := func(v *float64, unit string) string {
		if v == nil {
			return "unlimited"
		}
		return strconv.FormatFloat(*v, 'f', -1, 64) + unit
	}
	for _, t := range tenants[:min(len(tenants), tenantsShown)] {
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(t.Require)) {
			labels = append(labels, name+"="+strings.Join(t.Require[name], "+"))
		}
		table.row(t.Name, strconv.Itoa(t.Keys), t.Priority, cmp.Or(strings.Join(labels, ","), "nothing"), number(t.Rate, "/s"), number(t.TokensPerMinute, "/min"))
	}
	if err := table.print(); err != nil || len(tenants) <= tenantsShown {
		return err
	}
	_, err := fmt.Fprintf(w, "and %d more; --json lists all\n", len(tenants)-tenantsShown)
	return err
}
