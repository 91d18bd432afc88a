package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"penstock/balancer/problem"
	"penstock/balancer/solve"
)

const solveHelp = `Solve a routing problem: where should the demand of each source go, so that all
requests together take least, network and engines, and no engine is above its
capacity?

FILE is a JSON document; "-" reads it from standard input. --example prints one
to start from. It has the sources with their demand in requests/s by class, the
engines with capacity and latency under load (base + slope/(1 - load/limit), or
measured points), round trips in ms, what it costs to shed a request by priority
and, where there is a last table, what it costs to move one.

The answer has the weights of every source and class, what is shed, the load and
price of every engine, and a certificate: a lower bound that follows from the
prices, so that the gap to it is a proof of how good the weights are.

  status optimal    gap at most 1e-6
  status feasible   valid weights all the same, with the gap that is stated

--method chooses how: gradient (projected gradient), interior (interior point)
or auto, which begins with the gradient where the file has the weights of a last
table, and takes interior where it has none or where that does not get there.`

const solveExamples = `  penstock solve --example > problem.json
  penstock solve --problem problem.json
  penstock solve --problem problem.json --json | jq '.loads[] | select(.utilisation > 0.9)'
  penstock solve --example | penstock solve --problem - --method gradient`

//go:embed cmd_solve_example.json
var solveExample string

func newSolveCommand() *cobra.Command {
	var path string
	var method methodFlag
	var example, asJSON bool
	cmd := &cobra.Command{
		Use:     "solve --problem FILE | --example",
		Short:   "Compute optimal weights for a routing problem, with a proof",
		Long:    solveHelp,
		Example: solveExamples,
		Args:    exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case example && (cmd.Flags().Changed("problem") || cmd.Flags().Changed("method")):
				return usagef("want either --problem FILE or --example")
			case example:
				_, err := io.WriteString(cmd.OutOrStdout(), solveExample)
				return err
			case path == "":
				return usagef("solve needs a problem: --problem FILE, or --example for one to start from")
			}
			return runSolve(cmd, path, solve.Method(method), asJSON)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&path, "problem", "", "the problem, a JSON `FILE`; - for standard input")
	f.Var(&method, "method", "auto, gradient or interior")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	f.BoolVar(&example, "example", false, "print a problem file to start from")
	_ = cmd.MarkFlagFilename("problem", "json")
	_ = cmd.RegisterFlagCompletionFunc("method", cobra.FixedCompletions([]string{"auto", "gradient", "interior"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runSolve(cmd *cobra.Command, path string, method solve.Method, asJSON bool) error {
	p, err := readProblem(cmd.InOrStdin(), path)
	if err != nil {
		return err
	}
	var solver solve.Solver
	start := time.Now()
	result := solver.Solve(p, method)
	took := time.Since(start)
	if c := result.Certificate; math.IsNaN(c.Gap) || math.IsInf(c.Objective, 0) || math.IsInf(c.Bound, 0) {
		return fmt.Errorf("%s: its numbers are too large to compute with: the objective comes to %v, the bound to %v", nameOfInput(path), c.Objective, c.Bound)
	}
	report := newSolveReport(p, result, took)
	if asJSON {
		return printJSON(cmd, report)
	}
	return report.print(cmd.OutOrStdout(), p)
}

func readProblem(stdin io.Reader, path string) (*problem.Problem, error) {
	var data []byte
	var err error
	if path == "-" {
		path = "standard input"
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: there is nothing in it; penstock solve --example prints a problem to start from", path)
	}
	p, err := problem.Parse(data)
	if faults, ok := errors.AsType[problem.Faults](err); ok && len(faults) > 1 {
		return nil, fmt.Errorf("%s has %d faults:\n%w", path, len(faults), faults)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// methodFlag is a solve.Method as a flag.
type methodFlag solve.Method

func (m *methodFlag) String() string { return solve.Method(*m).String() }
func (m *methodFlag) Type() string   { return "METHOD" }
func (m *methodFlag) Set(text string) error {
	for _, method := range []solve.Method{solve.Auto, solve.Gradient, solve.Interior} {
		if method.String() == text {
			*m = methodFlag(method)
			return nil
		}
	}
	return errors.New("must be auto, gradient or interior")
}
