package enginetest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// Zone is the names of a name server, written by a test. A name that was never
// set does not exist.
type Zone struct {
	mu    sync.Mutex // guards what is below
	hosts map[string][]netip.Addr
	srvs  map[string][]net.SRV
	fails map[string]DNSFailure
	asked map[string]int
}

// NewZone is without names.
func NewZone() *Zone {
	return &Zone{hosts: map[string][]netip.Addr{}, srvs: map[string][]net.SRV{}, fails: map[string]DNSFailure{}, asked: map[string]int{}}
}

// Resolver asks the zone without a network, so that it works on a synctest
// clock.
func (z *Zone) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			z.stream(there)
		}()
		return here, nil
	}}
}

// DNS is a name server on loopback, over UDP and TCP.
type DNS struct {
	*Zone
	udp     net.PacketConn
	tcp     net.Listener
	running sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
}

// DNSFailure is how a DNS does not answer a name. Closed.
type DNSFailure uint8

const (
	DNSAnswers  DNSFailure = iota // it does
	DNSServFail                   // the code for a fault of the server
	DNSRefuses                    // the code for a policy
	DNSSilent                     // nothing comes back
	DNSGarbage                    // what comes back is not DNS
)

// maxUDPAnswer is what resolvers take over UDP; more is truncated.
const maxUDPAnswer = 1232

// StartDNS serves a zone until Close.
func StartDNS(z *Zone) (*DNS, error) {
	d := &DNS{Zone: z, conns: map[net.Conn]bool{}}
	var err error
	for range 20 { // until one number is free for both
		if d.udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		if d.tcp, err = net.Listen("tcp", d.udp.LocalAddr().String()); err == nil {
			break
		}
		d.udp.Close()
	}
	if err != nil {
		return nil, err
	}
	d.running.Go(d.serveUDP)
	d.running.Go(d.serveTCP)
	return d, nil
}

// Close ends it.
func (d *DNS) Close() {
	d.udp.Close()
	d.tcp.Close()
	d.mu.Lock()
	for c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.running.Wait()
}

// Resolver asks this server, whatever the system's configuration says.
func (d *DNS) Resolver() *net.Resolver {
	address := d.udp.LocalAddr().String()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}}
}

// canonical is a name as the zone has it.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

// SetHost gives a name its addresses; with none it exists and has none.
func (z *Zone) SetHost(name string, addresses ...string) {
	addrs := make([]netip.Addr, len(addresses))
	for i, a := range addresses {
		addrs[i] = netip.MustParseAddr(a)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.hosts[canonical(name)] = addrs
}

// SetSRV gives a name its SRV records.
func (z *Zone) SetSRV(name string, records ...net.SRV) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.srvs[canonical(name)] = records
}

// Remove lets a name not exist.
func (z *Zone) Remove(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.hosts, canonical(name))
	delete(z.srvs, canonical(name))
}

// Fail says how a name is not answered from now on.
func (z *Zone) Fail(name string, how DNSFailure) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.fails[canonical(name)] = how
}

// Asked counts the questions for a name, of any type.
func (z *Zone) Asked(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[canonical(name)]
}

func (d *DNS) serveUDP() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := d.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := d.answer(buf[:n], maxUDPAnswer); answer != nil {
			d.udp.WriteTo(answer, from)
		}
	}
}

func (d *DNS) serveTCP() {
	for {
		conn, err := d.tcp.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conns[conn] = true
		d.mu.Unlock()
		d.running.Go(func() {
			defer func() {
				conn.Close()
				d.mu.Lock()
				delete(d.conns, conn)
				d.mu.Unlock()
			}()
			d.stream(conn)
		})
	}
}

// stream answers queries as TCP frames them.
func (z *Zone) stream(conn net.Conn) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(head[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		if answer := z.answer(query, 1<<16-1); answer != nil {
			conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
		}
	}
}

// answer makes the response to a query; nil for none. One beyond limit bytes
// is truncated to nothing, so that the asker comes again over TCP.
func (z *Zone) answer(query []byte, limit int) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := canonical(q.Name.String())
	z.mu.Lock()
	z.asked[name]++
	fail := z.fails[name]
	addrs, isHost := z.hosts[name]
	srvs, isSRV := z.srvs[name]
	z.mu.Unlock()

	m := dnsmessage.Message{Header: dnsmessage.Header{ID: head.ID, Response: true, Authoritative: true, RecursionDesired: head.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q}}
	switch {
	case fail == DNSSilent:
		return nil
	case fail == DNSGarbage:
		return []byte("this is not DNS")
	case fail == DNSServFail:
		m.RCode = dnsmessage.RCodeServerFailure
	case fail == DNSRefuses:
		m.RCode = dnsmessage.RCodeRefused
	case !isHost && !isSRV:
		m.RCode = dnsmessage.RCodeNameError
	default:
		m.Answers = records(q, addrs, srvs)
	}
	packed, err := m.Pack()
	if err != nil || len(packed) > limit {
		m.Answers, m.Truncated = nil, true
		packed, _ = m.Pack()
	}
	return packed
}

// records are the answers of the type that was asked for.
func records(q dnsmessage.Question, addrs []netip.Addr, srvs []net.SRV) (answers []dnsmessage.Resource) {
	add := func(body dnsmessage.ResourceBody) {
		answers = append(answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 5}, Body: body})
	}
	switch q.Type {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
		for _, a := range addrs {
			if q.Type == dnsmessage.TypeA && a.Is4() {
				add(&dnsmessage.AResource{A: a.As4()})
			}
			if q.Type == dnsmessage.TypeAAAA && a.Is6() {
				add(&dnsmessage.AAAAResource{AAAA: a.As16()})
			}
		}
	case dnsmessage.TypeSRV:
		for _, s := range srvs {
			add(&dnsmessage.SRVResource{Priority: s.Priority, Weight: s.Weight, Port: s.Port, Target: dnsmessage.MustNewName(canonical(s.Target))})
		}
	}
	return answers
}
