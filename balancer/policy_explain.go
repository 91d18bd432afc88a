package balancer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"penstock/balancer/problem"
	"penstock/route"
)

// byPolicy says why row c has its weights under a policy that solves nothing.
func (d *Decision) byPolicy(c int) []string {
	row, s := &d.Plan.Rows[c], d.Situation
	if s == nil || c >= len(s.Rows) {
		return []string{"The policy " + d.Plan.Policy + " decides; it solves nothing."}
	}
	if len(row.Weights) == 0 {
		return []string{"No engine that may serve it takes traffic."}
	}
	given := make(map[string]float64, len(row.Weights))
	for _, w := range row.Weights {
		given[w.Engine] = w.Weight
	}
	var text []string
	switch d.Plan.Policy {
	case Nearest.String():
		text = d.sayNearest(c)
	case Waterfall.String():
		text = d.sayWaterfall(c, given)
	case Feedback.String():
		text = d.sayFeedback(c, given)
	case RoundRobin.String():
		text = []string{"All engines that take traffic alike."}
	default:
		text = []string{"In proportion to capacity, whatever is asked for: " + s.capacities(c) + "."}
	}
	if how := d.Plan.Rule.Explain(); how != "" {
		text = append(text, "A request goes to "+how+".")
	}
	return append(text, sayShed(row)...)
}

// sayShed names what is refused for want of capacity.
func sayShed(row *route.PlanRow) (text []string) {
	for k, z := range row.Shed {
		if z > 0 {
			text = append(text, fmt.Sprintf("%s of the %s requests are refused: with all that comes before them the engines it may use would be above %s of their capacity.",
				percent(z), problem.Priority(k), percent(1-margin)))
		}
	}
	return text
}

// capacities lists what the row's engines may be given at most, the largest
// first.
func (s *Situation) capacities(c int) string {
	var takers []int
	for _, j := range s.Rows[c].Candidates {
		if s.capacity(j) > 0 {
			takers = append(takers, j)
		}
	}
	slices.SortStableFunc(takers, func(a, b int) int { return cmp.Compare(s.capacity(b), s.capacity(a)) })
	var parts []string
	for i, j := range takers {
		if i == mostSaid {
			parts = append(parts, fmt.Sprintf("%d more", len(takers)-mostSaid))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %.3g/s", s.Engines[j].Name, s.capacity(j)))
	}
	return strings.Join(parts, ", ")
}

// clusterView is what a row finds in one cluster.
type clusterView struct {
	name          string
	away          float64 // ms
	load, carries float64 // of its engines, requests/s of the mean request
	weight        float64
	uncalibrated  bool
}

// clusters are the row's clusters with engines that take traffic, the nearest
// first.
func (d *Decision) clusters(c int, given map[string]float64) (views []clusterView) {
	s := d.Situation
	load := make(map[string]float64, len(d.Plan.Engines))
	for i := range d.Plan.Engines {
		load[d.Plan.Engines[i].Name] = d.Plan.Engines[i].Load
	}
	for _, places := range s.tiers(c) {
		v := clusterView{away: math.Inf(1)}
		for _, i := range places {
			j := s.Rows[c].Candidates[i]
			e := &s.Engines[j]
			v.name = e.Cluster
			v.away = min(v.away, s.RTT[s.Rows[c].Source][j])
			v.load += load[e.Name]
			v.carries += s.effective(j)
			v.weight += given[e.Name]
			v.uncalibrated = v.uncalibrated || !e.Calibrated
		}
		views = append(views, v)
	}
	return views
}

func (v *clusterView) fill() string {
	switch {
	case v.uncalibrated:
		return fmt.Sprintf("planned with %.3g requests/s; what it carries is not known yet", v.load)
	case v.load > v.carries*(1+rounding):
		return fmt.Sprintf("planned with %.3g requests/s, more than the %.3g that it may be given", v.load, v.carries)
	}
	return fmt.Sprintf("planned with %.3g of the %.3g requests/s that it may be given", v.load, v.carries)
}

func (d *Decision) sayNearest(c int) (text []string) {
	views := d.clusters(c, nil)
	if len(views) == 0 {
		return nil
	}
	v := &views[0]
	text = append(text, fmt.Sprintf("All to %s, %s away, the nearest cluster with engines that take traffic; it is %s.", v.name, millis(v.away), v.fill()))
	if len(views) > 1 {
		text = append(text, fmt.Sprintf("The next one would be %s, %s away.", views[1].name, millis(views[1].away)))
	}
	return text
}

func (d *Decision) sayWaterfall(c int, given map[string]float64) (text []string) {
	for i, v := range d.clusters(c, given) {
		full := v.load >= v.carries*(1-rounding)
		switch {
		case i == mostSaid:
			return append(text, "And so on.")
		case v.weight > 0 && full:
			text = append(text, fmt.Sprintf("%s to %s, %s away: it is full, and the rest goes on; %s.", percent(v.weight), v.name, millis(v.away), v.fill()))
		case v.weight > 0:
			text = append(text, fmt.Sprintf("%s to %s, %s away; %s.", percent(v.weight), v.name, millis(v.away), v.fill()))
		case full:
			text = append(text, fmt.Sprintf("None to %s, %s away: nearer sources fill it.", v.name, millis(v.away)))
		default:
			return append(text, fmt.Sprintf("None to %s, %s away, or further: nothing is left for it.", v.name, millis(v.away)))
		}
	}
	return text
}

func (d *Decision) sayFeedback(c int, given map[string]float64) (text []string) {
	if d.Feedback == nil {
		return []string{"In proportion to capacity and to how engines have performed."}
	}
	text = append(text, "In proportion to capacity times a factor, which falls while an engine performs worse than the average and rises while it performs better.")
	said := 0
	for i := range d.Feedback.Engines {
		e := &d.Feedback.Engines[i]
		if given[e.Name] <= 0 {
			continue
		}
		if said++; said > mostSaid {
			return append(text, "And so on.")
		}
		text = append(text, fmt.Sprintf("%s to %s: factor %.2f, score %.2f against 1.00%s%s.", percent(given[e.Name]), e.Name, e.Factor, e.Score, e.worst(), e.held()))
	}
	return text
}

// worst names the signal that moves the score most.
func (e *FeedbackEngine) worst() string {
	worst, most := -1, 0.005
	for part, share := range feedbackShare {
		if by := math.Abs(share * (e.Parts[part] - 1)); by > most && !math.IsNaN(e.Smoothed[part]) {
			worst, most = part, by
		}
	}
	if worst < 0 {
		return ""
	}
	return fmt.Sprintf(" (%s %s, %.2f times the average)", feedbackPartNames[worst], signalText(worst, &e.Smoothed[worst]), e.Parts[worst])
}

func (e *FeedbackEngine) held() string {
	if e.Clamp == ClampNone {
		return ""
	}
	return ", held by the " + e.Clamp.String()
}
