package sim

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Network is how far regions are from each other: what is written in the fleet
// file, else the measured matrix that Matrix names, by regions' names.
type Network struct {
	Matrix string                        `toml:"matrix"` // aws or gcp; "" = aws where regions are called as there
	RTT    map[string]map[string]float64 `toml:"rtt_ms"`

	trips [][]time.Duration // by region and region
}

// The matrices, measured: networks/README.md has their sources.
var (
	//go:embed networks/aws_rtt_ms.csv
	awsText string
	//go:embed networks/gcp_rtt_ms.csv
	gcpText string
)

// withinRegion is the round trip within a region of which nothing is known, in ms.
const withinRegion = 1

// Trip is the round trip between two regions, by their place in the fleet.
func (n *Network) Trip(from, to int) time.Duration { return n.trips[from][to] }

func (n *Network) complete(regions []Region) error {
	known := map[string]map[string]float64{}
	for _, text := range map[string][]string{"": {awsText, gcpText}, "aws": {awsText}, "gcp": {gcpText}}[n.Matrix] {
		if err := readMatrix(text, known); err != nil {
			return err
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("network: no matrix is called %q; there are aws and gcp", n.Matrix)
	}
	n.trips = make([][]time.Duration, len(regions))
	for i, a := range regions {
		n.trips[i] = make([]time.Duration, len(regions))
		for j, b := range regions {
			v, ok := n.RTT[a.Name][b.Name]
			if !ok {
				v, ok = n.RTT[b.Name][a.Name]
			}
			if !ok {
				v, ok = known[a.Name][b.Name]
			}
			if !ok && i == j {
				v, ok = withinRegion, true
			}
			if !ok {
				return fmt.Errorf("network: no round trip from %s to %s: neither in [network.rtt_ms] nor measured", a.Name, b.Name)
			}
			if !(v >= 0) || v > 10_000 || math.IsInf(v, 0) {
				return fmt.Errorf("network: round trip from %s to %s: %v: want 0 to 10000 milliseconds", a.Name, b.Name, v)
			}
			n.trips[i][j] = ms(v)
		}
	}
	return nil
}

func readMatrix(text string, into map[string]map[string]float64) error {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return err
	}
	for _, row := range rows[1:] {
		m := make(map[string]float64, len(row))
		for k, cell := range row[1:] {
			if cell == "" {
				continue
			}
			if m[rows[0][k+1]], err = strconv.ParseFloat(cell, 64); err != nil {
				return err
			}
		}
		into[row[0]] = m
	}
	return nil
}
