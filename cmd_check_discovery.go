package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"penstock/config"
	"penstock/engine"
)

// foundReport is what check tells of [discovery]; nil where there is none.
type foundReport struct {
	DNS     []string    `json:"dns"`
	Files   []foundFile `json:"file_sd"`
	LeftOut []string    `json:"left_out"` // listed and not used

	found []engine.Config // those that the files list and that are used
}

type foundFile struct {
	Pattern string   `json:"pattern"`
	File    string   `json:"file"` // "": nothing matches
	Engines int      `json:"engines"`
	Faults  []string `json:"faults"`
}

// checkDiscovery reads the files of a configuration that has no fault itself.
func checkDiscovery(path string, f *config.File) *foundReport {
	if f == nil || len(f.Discovery.DNS)+len(f.Discovery.FileSD) == 0 {
		return nil
	}
	r := &foundReport{DNS: append([]string{}, f.Discovery.DNS...), Files: []foundFile{}, LeftOut: []string{}}
	reports, found, leftOut := engine.CheckFiles(f.Engines, f.Discovery, f.Gateway.Source, filepath.Dir(path))
	r.found, r.LeftOut = found, append(r.LeftOut, leftOut...)
	for _, one := range reports {
		file := foundFile{Pattern: one.Pattern, File: one.File, Engines: len(one.Engines), Faults: []string{}}
		for _, fault := range one.Faults {
			file.Faults = append(file.Faults, fault.String())
		}
		r.Files = append(r.Files, file)
	}
	return r
}

// engines are those that the files list and that are used.
func (r *foundReport) engines() []engine.Config {
	if r == nil {
		return nil
	}
	return r.found
}

// err is every fault of the files, one a line.
func (r *foundReport) err() error {
	var faults []error
	if r != nil {
		for _, f := range r.Files {
			for _, fault := range f.Faults {
				faults = append(faults, errors.New(plainText(fault)))
			}
		}
	}
	return errors.Join(faults...)
}

func (r *foundReport) print(w io.Writer) error {
	if r == nil {
		return nil
	}
	fmt.Fprintln(w)
	for _, name := range r.DNS {
		fmt.Fprintf(w, "discovery.dns %s: looked up by serve\n", name)
	}
	for _, f := range r.Files {
		switch {
		case len(f.Faults) > 0:
			fmt.Fprintf(w, "discovery.file_sd %s: cannot be used\n", plainText(cmp.Or(f.File, f.Pattern)))
		case f.File == "":
			fmt.Fprintf(w, "discovery.file_sd %s: no file matches\n", plainText(f.Pattern))
		default:
			fmt.Fprintf(w, "discovery.file_sd %s: %d engines\n", plainText(f.File), f.Engines)
		}
	}
	for _, text := range r.LeftOut {
		fmt.Fprintf(w, "left out: %s\n", plainText(text))
	}
	return nil
}
