package balancer

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// An engine has the same series whatever rule holds; they leave with it.
func TestRulesOnThePage(t *testing.T) {
	v := observe(t, map[string][]string{"a": {"m"}})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&v.o)
	page := func() (series int, distrust map[string]float64) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		distrust = make(map[string]float64)
		for _, f := range families {
			series += len(f.GetMetric())
			for _, m := range f.GetMetric() {
				if f.GetName() == "penstock_metrics_distrust" {
					distrust[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		return series, distrust
	}
	if n, _ := page(); n != int(dataRules) {
		t.Errorf("%d series before the first look", n)
	}
	v.pass(1, nil)
	n, distrust := page()
	if n != int(dataRules)+5+1 || distrust["missing"] != 1 || distrust["stale"]+distrust["distrusted"]+distrust["lying"]+distrust["frozen"] != 0 {
		t.Errorf("%d series, %v", n, distrust)
	}
	if err := v.fleet.Apply(nil); err != nil {
		t.Fatal(err)
	}
	v.pass(1, nil)
	if n, _ := page(); n != int(dataRules) {
		t.Errorf("%d series of no engine", n)
	}
}
