package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"penstock/engine"
)

// An operator's orders outlive the process in a file of gateway.state_dir.

const (
	ordersFile     = "orders"
	maxSavedOrders = 16 << 20
)

// savedOrder is one line of the file.
type savedOrder struct {
	Engine string    `json:"engine"`
	URL    string    `json:"url"`
	Order  string    `json:"order"`
	Since  time.Time `json:"since"`
}

// restoreOrders gives the fleet the orders of the process before, before it
// has any engine.
func (s *state) restoreOrders(fleet *engine.Fleet) {
	if s.dir == "" {
		return
	}
	path := filepath.Join(s.dir, ordersFile)
	orders, err := readOrders(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.log.Warn("saved orders are not used: engines that were cordoned or drained serve", "file", path, "error", err.Error())
	default:
		s.log.Info("saved orders", "file", path, "orders", len(orders))
		fleet.RestoreOrders(orders)
	}
}

func readOrders(path string) (orders []engine.Ordered, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSavedOrders {
		return nil, errors.New("too large")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var o savedOrder
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, err
		}
		order, err := engine.ParseOrder(o.Order)
		if err != nil {
			return nil, err
		}
		orders = append(orders, engine.Ordered{Name: o.Engine, URL: o.URL, Order: order, Since: o.Since})
	}
	return orders, nil
}

// saveOrders writes the orders that hold, at once: the next restart may be near.
func (s *state) saveOrders(fleet *engine.Fleet) {
	if s.dir == "" {
		return
	}
	s.orders.Lock()
	defer s.orders.Unlock()
	var text bytes.Buffer
	for _, o := range fleet.Orders() {
		line, err := json.Marshal(savedOrder{o.Name, o.URL, o.Order.String(), o.Since})
		if err != nil {
			panic(err) // texts and a time
		}
		text.Write(append(line, '\n'))
	}
	if err := replaceFile(filepath.Join(s.dir, ordersFile), &text); err != nil {
		s.log.Error("gateway.state_dir cannot be written, a restart would forget orders", "error", err.Error())
	}
}
