package main

import (
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `Penstock stands between the clients of an LLM fleet and its inference engines
(vLLM, llama.cpp and other servers that speak the OpenAI API). For every request
it chooses the engine and streams the answer back: a conversation stays on the
engine that holds its KV cache, load spreads by what each engine can carry, and
a dead engine costs nobody an answer.

A first look needs nothing but this program:

  penstock demo                             engines, gateway and clients, all here

Your own engines need a file with two of them in it (penstock.toml):

  [[engine]]
  name = "a1"
  url = "http://127.0.0.1:8001"

  [[engine]]
  name = "b1"
  url = "http://127.0.0.1:8002"

and then

  penstock check --config penstock.toml     every fault of the file, with its line
  penstock serve --config penstock.toml     clients at http://127.0.0.1:8080/v1
  penstock engines                          which engines take traffic, and why not
  penstock explain REQUEST-ID               why a request went where it went

Exit codes: 0 done; 1 the input or the run failed, with the reason on stderr;
2 wrong usage. Results are on stdout, everything else on stderr. config.toml.example
explains every key.`

// newRootCommand builds the whole command tree. The writers come first:
// completion takes hold of them as it is made.
func newRootCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "A load balancer for LLM inference engines",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("want a command: %s", strings.Join(commandNames(cmd), ", "))
		},
	}
	root.Version = readVersion(debug.ReadBuildInfo()).String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(newBenchCommand(), newCheckCommand(), newDemoCommand(), newEnginesCommand(), newExplainCommand(), newFitCommand(), newFleetCommand(), newHashKeyCommand(), newProfileCommand(), newReportCommand(), newServeCommand(),
		newSimCommand(), newSimulateCommand(), newSolveCommand(), newTraceCommand(), newVersionCommand())
	root.SetHelpCommand(newHelpCommand(root))
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err.Error()} })
	finish(root)
	return root
}

// knownCommand is reached by names that are no command's.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("unknown command %q; there are %s", args[0], strings.Join(commandNames(cmd), ", "))
}

func commandNames(cmd *cobra.Command) []string { return namesOf(cmd.Root().Commands()) }

func namesOf(commands []*cobra.Command) []string {
	var names []string
	for _, c := range commands {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// finish makes every wrong number of arguments a usage error, also that of a
// command which only groups others, and leaves out the completion of a shell
// that Penstock's systems do not have.
func finish(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			return usagef("want one of %s", strings.Join(namesOf(cmd.Commands()), ", "))
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{err.Error()}
			}
			return nil
		}
	}
	completeNothing(cmd)
	for _, c := range slices.Clone(cmd.Commands()) {
		if c.Name() == "powershell" {
			cmd.RemoveCommand(c)
			continue
		}
		finish(c)
	}
}

// completeNothing keeps a shell from offering files where none is wanted. A
// command that takes a file says so by a ValidArgsFunction, a flag by
// MarkFlagFilename.
func completeNothing(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, takesFile := f.Annotations[cobra.BashCompFilenameExt]
		if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && !takesFile {
			if err := cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions); err != nil {
				panic(err) // it has none yet
			}
		}
	})
}

// newHelpCommand is cobra's, but a command that does not exist is an error.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show what a command does and how to call it",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return commandNames(root), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			named, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return knownCommand(root, args)
			}
			named.InitDefaultHelpFlag()
			return named.Help()
		},
	}
}

// exactly wants n arguments, and says in words what they are.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		if n == 0 {
			return usagef("want no argument, got %q", args[0])
		}
		return usagef("want %s, got %d arguments", what, len(args))
	}
}
