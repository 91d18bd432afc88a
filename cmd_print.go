package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
)

// What commands share that print results.

// printJSON is the one document of a --json run.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printDocument passes an answer on as it came.
func printDocument(cmd *cobra.Command, body json.RawMessage) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", strings.TrimSpace(string(body)))
	return err
}

// writable tells before a long measurement that its result could not be
// written. What is there stays as it is.
func writable(paths ...string) error {
	for _, path := range paths {
		if path == "" {
			continue
		}
		_, err := os.Stat(path)
		fresh := errors.Is(err, fs.ErrNotExist)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("the result could not be written: %w", err)
		}
		_ = f.Close() // nothing was written
		if fresh {
			_ = os.Remove(path)
		}
	}
	return nil
}

// table is aligned columns of text that may come from anywhere: what a
// terminal would take for a command is shown as ?.
type table struct{ w *tabwriter.Writer }

func newTabWriter(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func newTable(w io.Writer, columns ...string) table {
	t := table{newTabWriter(w)}
	t.row(columns...)
	return t
}

func (t table) row(cells ...string) {
	for i := range cells {
		cells[i] = plainText(cells[i])
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), " "))
}

func (t table) print() error { return t.w.Flush() }

// plainText makes text from engines and clients safe for a terminal and a
// table: one line, no control characters.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
