package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is what the binary knows of its own making.
type buildVersion struct {
	Version  string `json:"version"`            // of the module; (devel) in a build from a checkout without tags
	Revision string `json:"revision,omitempty"` // of the source
	Time     string `json:"time,omitempty"`     // of that revision
	Modified bool   `json:"modified,omitempty"` // the source had changes beside it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Long: `Show the version, the source revision it was built from, and the Go toolchain
that built it: what a report of a fault should say.`,
		Example: "  penstock version\n  penstock version --json",
		Args:    exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readVersion(debug.ReadBuildInfo())
			if asJSON {
				return printJSON(cmd, v)
			}
			fmt.Fprintln(cmd.OutOrStdout(), v)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func readVersion(info *debug.BuildInfo, ok bool) buildVersion {
	v := buildVersion{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return v
	}
	v.Version = cmp.Or(info.Main.Version, v.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v buildVersion) String() string {
	text := "penstock " + v.Version
	if v.Revision != "" {
		text += " (" + v.Revision[:min(len(v.Revision), 12)]
		if v.Modified {
			text += ", modified"
		}
		if v.Time != "" {
			text += ", " + v.Time
		}
		text += ")"
	}
	return text + " " + v.Go + " " + v.Platform
}
