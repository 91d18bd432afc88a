package route

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"penstock/engine"
)

// Saved is a table as it outlives its process: which engine had which slot of
// which class. Engines are known by name and URL.
type Saved struct {
	Version uint64
	Source  string
	Classes []ClassKey

	built int64       // unix seconds
	pools []savedPool // of Classes, by index
}

type savedPool struct {
	Engines []savedEngine `json:"engines"`
	Slots   int           `json:"slots"`
	slots   []Slot        // of indexes into Engines
}

type savedEngine struct {
	Name   string  `json:"name"`
	URL    string  `json:"url"`
	Weight float64 `json:"weight"`
}

type savedClass struct {
	Model   string            `json:"model"`
	Caps    engine.Capability `json:"capabilities"`
	Tier    uint8             `json:"tier"`
	Require string            `json:"require"`
	Pool    int               `json:"pool"`
}

type savedHead struct {
	Version uint64       `json:"version"`
	Built   int64        `json:"built"` // unix seconds
	Source  string       `json:"source"`
	Classes []savedClass `json:"classes"`
	Pools   []savedPool  `json:"pools"`
}

const (
	savedMagic     = "penstock table 1\n"
	maxSavedSlot   = 1 << 22 // slots of a pool
	savedSlotBytes = 6
)

// WriteTo writes the slots of t: a line of JSON, engine, previous engine and
// time of the move of each slot as 16-bit numbers, lowest byte first, and the
// xxHash of all before it.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	head := savedHead{Version: t.Version, Built: t.Built.Unix(), Source: t.Source}
	var pools []*Pool
	for k, class := range t.Classes {
		p := class.Pool
		if p.slots == nil {
			continue
		}
		i := slices.Index(pools, p)
		if i < 0 {
			i = len(pools)
			pools = append(pools, p)
			head.Pools = append(head.Pools, p.saved())
		}
		head.Classes = append(head.Classes, savedClass{Model: k.Model, Caps: k.Caps, Tier: k.Tier, Require: k.Require, Pool: i})
	}
	var b bytes.Buffer
	b.WriteString(savedMagic)
	if err := json.NewEncoder(&b).Encode(head); err != nil {
		return 0, fmt.Errorf("table: %w", err)
	}
	for _, p := range pools {
		for _, s := range p.slots {
			b.Write([]byte{byte(s.Engine), byte(s.Engine >> 8), byte(s.Previous), byte(s.Previous >> 8), byte(s.MovedAt), byte(s.MovedAt >> 8)})
		}
	}
	b.Write(binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(b.Bytes())))
	return b.WriteTo(w)
}

func (p *Pool) saved() savedPool {
	s := savedPool{Slots: len(p.slots), Engines: make([]savedEngine, len(p.Candidates))}
	for i := range p.Candidates {
		c := &p.Candidates[i]
		s.Engines[i] = savedEngine{Name: c.Engine.Name, URL: c.Engine.URL, Weight: c.Weight}
	}
	return s
}

var errNotATable = errors.New("not a saved table, or cut short")

// ReadSaved reads what Table.WriteTo wrote. Anything else, and anything
// changed or cut, is an error and nothing is used of it.
func ReadSaved(data []byte) (*Saved, error) {
	body, ok := bytes.CutPrefix(data, []byte(savedMagic))
	if !ok || len(body) < 8 || xxhash.Sum64(data[:len(data)-8]) != binary.LittleEndian.Uint64(data[len(data)-8:]) {
		return nil, errNotATable
	}
	line, rest, ok := bytes.Cut(body[:len(body)-8], []byte{'\n'})
	var head savedHead
	if !ok || json.Unmarshal(line, &head) != nil {
		return nil, errNotATable
	}
	r := bytes.NewReader(rest)
	s := &Saved{Version: head.Version, Source: head.Source, built: head.Built}
	for i := range head.Pools {
		if err := head.Pools[i].readSlots(r); err != nil {
			return nil, err
		}
	}
	for _, c := range head.Classes {
		if c.Pool < 0 || c.Pool >= len(head.Pools) {
			return nil, errNotATable
		}
		s.Classes = append(s.Classes, ClassKey{Model: c.Model, Caps: c.Caps, Tier: c.Tier, Require: c.Require})
		s.pools = append(s.pools, head.Pools[c.Pool])
	}
	return s, nil
}

// Plan is what the saved weights were, as the plan that the next ones are near
// to.
func (s *Saved) Plan(policy string) *Plan {
	p := &Plan{Policy: policy}
	engines := make(map[string]bool)
	for i, k := range s.Classes {
		row := PlanRow{Source: s.Source, Class: k}
		for _, e := range s.pools[i].Engines {
			if engines[e.Name] = true; e.Weight > 0 {
				row.Weights = append(row.Weights, PlanWeight{Engine: e.Name, Weight: e.Weight})
			}
		}
		p.Rows = append(p.Rows, row)
	}
	for _, name := range slices.Sorted(maps.Keys(engines)) {
		p.Engines = append(p.Engines, PlanEngine{Name: name, Capacity: 1})
	}
	return p
}

func (p *savedPool) readSlots(r io.Reader) error {
	if p.Slots <= 0 || p.Slots > maxSavedSlot || p.Slots&(p.Slots-1) != 0 {
		return errNotATable
	}
	raw := make([]byte, savedSlotBytes*p.Slots)
	if _, err := io.ReadFull(r, raw); err != nil {
		return errNotATable
	}
	p.slots = make([]Slot, p.Slots)
	for i := range p.slots {
		word := func(k int) uint16 { return binary.LittleEndian.Uint16(raw[savedSlotBytes*i+2*k:]) }
		s := Slot{Engine: word(0), Alternate: None, Previous: word(1), MovedAt: word(2)}
		for _, e := range []uint16{s.Engine, s.Previous} {
			if e != None && int(e) >= len(p.Engines) {
				return errNotATable
			}
		}
		p.slots[i] = s
	}
	return nil
}

// Pool is the saved pool of a class over those of its engines that are still
// there under the same name and URL, as the last pool to build the next one
// from; nil where the class was not saved, or none of its engines is there.
// now counts in seconds.
func (s *Saved) Pool(k ClassKey, engines []*engine.Engine, now int64) *Pool {
	if s == nil {
		return nil
	}
	i := slices.Index(s.Classes, k)
	if i < 0 {
		return nil
	}
	saved := &s.pools[i]
	byName := make(map[string]*engine.Engine, len(engines))
	for _, e := range engines {
		byName[e.Name] = e
	}
	var cands []Candidate
	index := make([]uint16, len(saved.Engines)) // saved index -> ours
	for i, e := range saved.Engines {
		index[i] = None
		if now := byName[e.Name]; now != nil && now.URL == e.URL {
			index[i] = uint16(len(cands))
			cands = append(cands, Candidate{Engine: now, Live: now.Live, Weight: e.Weight, Cap: now.Cap()})
		}
	}
	if len(cands) == 0 {
		return nil
	}
	p := NewAdHoc(cands, &Component{})
	p.Touch(1) // conversations are where it says
	p.shift = 64 - uint(bits.TrailingZeros(uint(saved.Slots)))
	p.slots = make([]Slot, saved.Slots)
	fresh := now >= s.built && now-s.built < KVLifetime // else MovedAt may have wrapped around
	for i, slot := range saved.slots {
		if slot.Engine != None {
			slot.Engine = index[slot.Engine]
		}
		if slot.Previous != None {
			slot.Previous = index[slot.Previous]
		}
		if !fresh {
			slot.Previous = None
		}
		p.slots[i] = slot
	}
	if fresh {
		p.movedAt = s.built
	}
	return p
}
