package admin

import "penstock/fleet"

// fleetView is GET /fleet.
type fleetView struct {
	Leader   string        `json:"leader"` // "" = nobody that this gateway hears of
	Epoch    uint64        `json:"epoch"`
	Version  uint64        `json:"version"`     // of the plan in use, in its epoch; 0 = none yet
	PlanAge  float64       `json:"plan_age_ms"` // since the leader last confirmed it
	Driver   string        `json:"driver"`
	Store    string        `json:"store"`
	Partial  bool          `json:"partial"` // the leader did not say who reports: these are what this gateway knows itself
	Gateways []fleetMember `json:"gateways"`
}

type fleetMember struct {
	Name   string  `json:"name"`
	Source string  `json:"source"`
	Age    float64 `json:"age_ms"` // of its last report
}

func fleetPage(s fleet.Status) fleetView {
	page := fleetView{Leader: s.Leader, Epoch: s.Epoch, Version: s.Version, PlanAge: ms(s.PlanAge), Driver: s.Driver, Store: s.Store, Partial: s.Partial, Gateways: []fleetMember{}}
	for _, g := range s.Gateways {
		page.Gateways = append(page.Gateways, fleetMember{g.Name, g.Source, ms(g.Age)})
	}
	return page
}
