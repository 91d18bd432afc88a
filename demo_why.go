package main

import (
	"fmt"
	"strings"

	"penstock/balancer"
	"penstock/route"
)

// why is the reason of a cluster's weights, by what its requests need beyond
// the model, from the gateway that plans; nil while nothing was solved.
func (f *demoFleet) why(cluster string) map[string]*balancer.Why {
	for _, g := range f.gateways {
		d := g.loop.Decision()
		if d == nil {
			continue
		}
		found := make(map[string]*balancer.Why)
		for i, why := range d.Explain() {
			if row := &d.Plan.Rows[i]; row.Source == cluster && row.Class.Model == demoModel && len(why.Options) > 0 {
				found[needText(row.Class)] = why
			}
		}
		return found
	}
	return nil
}

// pricesText says where one more request of a cluster would go, by the plan's
// prices.
func pricesText(cluster string, why *balancer.Why) string {
	if why == nil {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Why, by the plan's prices: what one more request of %s would cost all clients\n", cluster)
	for _, o := range why.Options {
		share := "gets nothing"
		if o.Weight >= leastWeight {
			share = fmt.Sprintf("gets %.0f%%", 100*o.Weight)
		}
		fmt.Fprintf(&text, "  on %s  %.2f s: %.0f ms away, %.0f ms there, %.0f ms that others wait longer; %s\n", o.Engine,
			o.Marginal/1000, o.Network, o.Latency, o.Price, share)
	}
	return text.String()
}

// roomText is what explain says about the requests that give way to those
// which may not leave; "" where none do.
func roomText(why *balancer.Why) string {
	if why == nil {
		return ""
	}
	for _, sentence := range why.Text {
		if strings.Contains(sentence, "makes room") {
			return sentence
		}
	}
	return ""
}

// whyText is why the cluster with too much has its weights: in the fleet under
// the optimal policy, and in the one where some may not leave.
func (c *comparison) whyText() string {
	var text strings.Builder
	cluster := c.world.clusters[excess].name
	for _, r := range c.rivals {
		free := r.why(cluster)[needText(route.ClassKey{Model: demoModel})]
		switch {
		case r.policy != balancer.Optimal:
		case !r.resident:
			text.WriteString(pricesText(cluster, free))
		case roomText(free) != "":
			fmt.Fprintf(&text, "In %s, of the requests that may leave:\n%s", r.name, wrapped(roomText(free), "  ", 78))
		}
	}
	return text.String()
}

// wrapped breaks a sentence into lines of no more than width bytes, where its
// words allow it.
func wrapped(sentence, indent string, width int) string {
	var text strings.Builder
	line := indent
	for _, word := range strings.Fields(sentence) {
		if line != indent && len(line)+1+len(word) > width {
			text.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return text.String() + line + "\n"
}
