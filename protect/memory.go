package protect

import "sync/atomic"

// Memory bounds how many bytes may be held at once. The zero value holds none;
// a negative limit never refuses. Safe for concurrent use.
type Memory struct {
	limit int64
	held  atomic.Int64
}

// NewMemory returns a bound of limit bytes.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Take reserves n bytes; false, with nothing reserved, if that would exceed
// the limit.
func (m *Memory) Take(n int64) bool {
	if now := m.held.Add(n); m.limit >= 0 && now > m.limit {
		m.held.Add(-n)
		return false
	}
	return true
}

// Give returns n bytes that Take reserved.
func (m *Memory) Give(n int64) { m.held.Add(-n) }

// Held is the number of bytes reserved now.
func (m *Memory) Held() int64 { return m.held.Load() }
