package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"penstock/bench/trace"
)

// Arrivals is how conversations follow each other.
type Arrivals struct {
	kind string  // poisson, gamma, constant
	cv   float64 // of the times between them
}

// Poisson arrivals know nothing of each other.
var Poisson = Arrivals{"poisson", 1}

// ParseArrivals reads poisson, constant or gamma:CV.
func ParseArrivals(text string) (Arrivals, error) {
	kind, rest, has := strings.Cut(text, ":")
	switch {
	case kind == "poisson" && !has:
		return Poisson, nil
	case kind == "constant" && !has:
		return Arrivals{"constant", 0}, nil
	case kind == "gamma" && has:
		if cv, err := strconv.ParseFloat(rest, 64); err == nil && cv >= 0.05 && cv <= 20 {
			return Arrivals{"gamma", cv}, nil
		}
	}
	return Arrivals{}, fmt.Errorf("%q: want poisson, constant, or gamma:CV with a coefficient of variation from 0.05 to 20 (1: Poisson; more: bursts)", text)
}

func (a Arrivals) String() string {
	if a.kind == "gamma" {
		return fmt.Sprintf("gamma:%g", a.cv)
	}
	return a.kind
}

// gap is a time between two arrivals at a rate per second.
func (a Arrivals) gap(dice *rand.Rand, rate float64) time.Duration {
	g := 1.0
	switch a.kind {
	case "poisson":
		g = dice.ExpFloat64()
	case "gamma": // with shape k and mean 1: CV = 1/sqrt(k)
		k := 1 / (a.cv * a.cv)
		g = trace.Gamma(dice, k) / k
	}
	return time.Duration(g / rate * float64(time.Second))
}
