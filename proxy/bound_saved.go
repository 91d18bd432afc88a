package proxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"

	"penstock/engine"
	"penstock/selector"
)

// IDs are the ids bound to engines as they outlive the process. Engines are
// known by name and URL, ids by their keyed hashes.
type IDs struct{ h *Handler }

// IDs gives the handler's ids to whoever keeps them.
func (h *Handler) IDs() IDs { return IDs{h} }

// Changes counts what was learned: a copy is up to date while it stands still.
func (s IDs) Changes() uint64 { return s.h.selector.Bound.Puts() }

type savedIDs struct {
	Engines []savedHolder `json:"engines"`
	Aliases []string      `json:"aliases"`
	Count   int           `json:"count"`
}

type savedHolder struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

const (
	savedIDsMagic = "penstock ids 1\n"
	savedIDBytes  = 16
	maxSavedIDs   = 1 << 20
)

// WriteTo writes a line of JSON, then for each id its hash, the second of its
// last use, its engine and its alias, lowest byte first, and the xxHash of all
// before it.
func (s IDs) WriteTo(w io.Writer) (int64, error) {
	var head savedIDs
	index := map[uint16]int{} // engine.Live.ID -> of head.Engines
	var list []byte
	s.h.selector.Bound.All(func(key uint64, used int64, to selector.Binding) {
		e := s.h.selector.EngineByID(to.Engine)
		if e == nil {
			return
		}
		i, ok := index[to.Engine]
		if !ok {
			i = len(head.Engines)
			index[to.Engine] = i
			head.Engines = append(head.Engines, savedHolder{e.Name, e.URL})
		}
		list = binary.LittleEndian.AppendUint64(list, key)
		list = binary.LittleEndian.AppendUint32(list, uint32(used))
		list = binary.LittleEndian.AppendUint16(list, uint16(i))
		list = binary.LittleEndian.AppendUint16(list, to.Mark)
		head.Count++
	})
	head.Aliases = s.h.names.all()
	var b bytes.Buffer
	b.WriteString(savedIDsMagic)
	if err := json.NewEncoder(&b).Encode(head); err != nil {
		return 0, fmt.Errorf("ids: %w", err)
	}
	b.Write(list)
	b.Write(binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(b.Bytes())))
	return b.WriteTo(w)
}

var errNotIDs = errors.New("not saved ids, or cut short")

// Restore takes in what WriteTo wrote, of the engines that find knows; missing
// is how many it does not. Anything else, and anything changed or cut, is an
// error and nothing is used of it.
func (s IDs) Restore(data []byte, find func(name, url string) *engine.Engine) (count, missing int, err error) {
	body, ok := bytes.CutPrefix(data, []byte(savedIDsMagic))
	if !ok || len(body) < 8 || xxhash.Sum64(data[:len(data)-8]) != binary.LittleEndian.Uint64(data[len(data)-8:]) {
		return 0, 0, errNotIDs
	}
	line, list, ok := bytes.Cut(body[:len(body)-8], []byte{'\n'})
	var head savedIDs
	if !ok || json.Unmarshal(line, &head) != nil || head.Count < 0 || head.Count > maxSavedIDs || len(list) != head.Count*savedIDBytes {
		return 0, 0, errNotIDs
	}
	holders := make([]*engine.Engine, len(head.Engines))
	for i, e := range head.Engines {
		if holders[i] = find(e.Name, e.URL); holders[i] == nil {
			missing++
		}
	}
	for entry := range slices.Chunk(list, savedIDBytes) {
		i, mark := int(binary.LittleEndian.Uint16(entry[12:])), binary.LittleEndian.Uint16(entry[14:])
		if i >= len(holders) || int(mark) > len(head.Aliases) {
			return count, missing, errNotIDs
		}
		if holders[i] == nil {
			continue
		}
		to := selector.Binding{Engine: holders[i].ID}
		if mark > 0 {
			to.Mark = s.h.names.mark(head.Aliases[mark-1])
		}
		s.h.selector.Bound.Put(binary.LittleEndian.Uint64(entry), to, int64(binary.LittleEndian.Uint32(entry[8:])))
		count++
	}
	return count, missing, nil
}
