package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"penstock/balancer/profile"
)

var (
	loadNames    = []string{"load", "rps", "rate", "load_rps", "requests_per_second"}
	latencyNames = []string{"latency", "latency_ms", "e2e", "e2e_ms", "mean_ms", "total_ms"}
)

// mostMeasured bounds the lines of a file.
const mostMeasured = 100_000

// readMeasured reads pairs of load and latency from a CSV file. Its errors name
// the file, the line and the column.
func readMeasured(stdin io.Reader, path string) ([]profile.Measured, error) {
	name := nameOfInput(path)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	in := bufio.NewReader(stdin)
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" { // as spreadsheets write it
		_, _ = in.Discard(3)
	}
	r := csv.NewReader(in)
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace = -1, '#', true
	var pairs []profile.Measured
	var columns fitColumns
	for first := true; ; first = false {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			return nil, fmt.Errorf("%s:%d:%d: not CSV: %w", name, bad.Line, bad.Column, bad.Err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if first {
			var isData bool
			if columns, isData, err = columnsOf(fields); err != nil {
				return nil, fmt.Errorf("%s:1: %w", name, err)
			}
			if !isData {
				continue
			}
		}
		pair, column, err := columns.pair(fields)
		if err != nil {
			line, at := lineOf(r, fields, column)
			return nil, fmt.Errorf("%s:%d:%d: %w", name, line, at, err)
		}
		if pairs = append(pairs, pair); len(pairs) > mostMeasured {
			return nil, fmt.Errorf("%s: more than %d measurements", name, mostMeasured)
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%s: %w", name, errNoPairs)
	}
	return pairs, nil
}

func lineOf(r *csv.Reader, fields []string, column int) (line, at int) {
	return r.FieldPos(min(column, len(fields)-1))
}

// fitColumns are the indices of the two columns.
type fitColumns struct{ load, latency int }

// columnsOf reads the first line: names, or, where both of two are numbers, data.
func columnsOf(fields []string) (c fitColumns, isData bool, err error) {
	numbers := 0
	for _, f := range fields {
		if _, err := strconv.ParseFloat(strings.TrimSpace(f), 64); err == nil {
			numbers++
		}
	}
	if len(fields) == 2 && numbers == 2 {
		return fitColumns{0, 1}, true, nil
	}
	index := func(names []string) int {
		for _, name := range names {
			if i := slices.IndexFunc(fields, func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), name) }); i >= 0 {
				return i
			}
		}
		return -1
	}
	c = fitColumns{index(loadNames), index(latencyNames)}
	missing := ""
	switch {
	case c.load < 0 && c.latency < 0:
		missing = "load and latency"
	case c.load < 0:
		missing = "load"
	case c.latency < 0:
		missing = "latency"
	default:
		return c, false, nil
	}
	if len(fields) == 1 && strings.ContainsAny(fields[0], ";\t") {
		return c, false, fmt.Errorf("one column only, %s: want commas between the columns", quotedList(fields))
	}
	return c, false, fmt.Errorf("no column %s: want load (or rps, rate) in requests/s and latency (or latency_ms, e2e_ms) in ms; there are %s", missing, quotedList(fields))
}

func quotedList(fields []string) string {
	const most = 12
	var quoted []string
	for _, f := range fields[:min(len(fields), most)] {
		quoted = append(quoted, strconv.Quote(f))
	}
	if len(fields) > most {
		quoted = append(quoted, "...")
	}
	return strings.Join(quoted, ", ")
}

// pair reads one line; an error comes with the column that is at fault.
func (c fitColumns) pair(fields []string) (profile.Measured, int, error) {
	var values [2]float64
	for i, column := range []int{c.load, c.latency} {
		what := [2]string{"load", "latency"}[i]
		if column >= len(fields) {
			return profile.Measured{}, column, fmt.Errorf("no %s: the line has %d of the columns", what, len(fields))
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(fields[column]), 64)
		switch {
		case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
			return profile.Measured{}, column, fmt.Errorf("%s = %q: want a number", what, fields[column])
		case i == 0 && v < 0:
			return profile.Measured{}, column, fmt.Errorf("load = %v: want 0 or more", v)
		case i == 1 && v <= 0:
			return profile.Measured{}, column, fmt.Errorf("latency = %v: want more than 0 ms", v)
		}
		values[i] = v
	}
	return profile.Measured{Load: values[0], Latency: values[1]}, 0, nil
}
