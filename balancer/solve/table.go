package solve

import "math"

// table finds equal things by hash and comparison, in memory that it keeps.
type table struct {
	slot []int32 // index + 1 of the thing, 0 where free; a power of two of them
	hash []uint64
}

// reset empties the table and makes room for n things.
func (t *table) reset(n int) {
	size := 16
	for size < 2*n {
		size *= 2
	}
	t.slot, t.hash = zeroed(t.slot, size), sized(t.hash, size)
}

// find is the index of the thing with this hash that is the same, else -1.
func (t *table) find(h uint64, same func(i int32) bool) int32 {
	last := uint64(len(t.slot) - 1)
	for k := h & last; t.slot[k] != 0; k = (k + 1) & last {
		if t.hash[k] == h && same(t.slot[k]-1) {
			return t.slot[k] - 1
		}
	}
	return -1
}

// add takes in a thing that is not there yet.
func (t *table) add(h uint64, i int32) {
	last := uint64(len(t.slot) - 1)
	k := h & last
	for t.slot[k] != 0 {
		k = (k + 1) & last
	}
	t.slot[k], t.hash[k] = i+1, h
}

// mix folds a word into a hash.
func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func mixFloat(h uint64, x float64) uint64 { return mix(h, math.Float64bits(x)) }

// sized gives a slice of n elements of any content, in the memory of s where it
// suffices.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// zeroed is sized with every element zero.
func zeroed[T any](s []T, n int) []T {
	s = sized(s, n)
	clear(s)
	return s
}
