package fleet

import (
	"encoding/binary"
	"math"
)

// encoder appends values to a body.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) count(n int)     { e.uint(uint64(n)) }
func (e *encoder) byte(v byte)     { e.b = append(e.b, v) }
func (e *encoder) float(v float64) { e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v)) }
func (e *encoder) float32(v float64) {
	e.b = binary.LittleEndian.AppendUint32(e.b, math.Float32bits(float32(v)))
}
func (e *encoder) text(s string) {
	e.count(len(s))
	e.b = append(e.b, s...)
}

// figure is for what people look at: what is no number is 0.
func (e *encoder) figure(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	e.float32(v)
}

// decoder reads them. What is cut or cannot be makes it bad, and all that is
// read after is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() {
	d.b, d.bad = nil, true
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many of something follow that take at least size bytes each:
// never more than there are bytes for, so that a lie allocates nothing.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail()
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) float() float64 {
	if v := d.take(8); v != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) float32() float64 {
	if v := d.take(4); v != nil {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v)))
	}
	return 0
}

// amount is a float that is finite and not negative; measure one that may also
// be NaN, for what nobody measured.
func (d *decoder) amount() float64   { return d.atLeast0(d.float()) }
func (d *decoder) amount32() float64 { return d.atLeast0(d.float32()) }

func (d *decoder) measure32() float64 {
	if v := d.float32(); math.IsNaN(v) {
		return math.NaN()
	} else {
		return d.atLeast0(v)
	}
}

func (d *decoder) atLeast0(v float64) float64 {
	if !(v >= 0) || math.IsInf(v, 0) {
		d.fail()
		return 0
	}
	return v
}

// finite is a float that may be negative.
func (d *decoder) finite() float64 {
	v := d.float()
	if math.IsNaN(v) || math.IsInf(v, 0) {
		d.fail()
		return 0
	}
	return v
}

// finite32 is a figure.
func (d *decoder) finite32() float64 {
	v := d.float32()
	if math.IsNaN(v) || math.IsInf(v, 0) {
		d.fail()
		return 0
	}
	return v
}

func (d *decoder) text() string { return string(d.take(d.count(1))) }

// done reports whether all was read, and read well.
func (d *decoder) done() bool { return !d.bad && len(d.b) == 0 }

// nameTable holds texts that are said once and then meant by their number.
type nameTable struct {
	list []string
	at   map[string]uint64
}

func (n *nameTable) of(s string) uint64 {
	if n.at == nil {
		n.at = make(map[string]uint64)
	}
	i, ok := n.at[s]
	if !ok {
		i = uint64(len(n.list))
		n.at[s] = i
		n.list = append(n.list, s)
	}
	return i
}

func (n *nameTable) code(e *encoder) {
	e.count(len(n.list))
	for _, s := range n.list {
		e.text(s)
	}
}

func readNames(d *decoder) []string {
	list := make([]string, d.count(1))
	for i := range list {
		list[i] = d.text()
	}
	return list
}

// name reads the number of one of them.
func (d *decoder) name(list []string) string {
	i := d.uint()
	if i >= uint64(len(list)) {
		d.fail()
		return ""
	}
	return list[i]
}
