package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// discoverTimeout bounds one look-up with all that the resolver tries in it:
// search domains, servers, TCP.
const discoverTimeout = 4 * time.Second

// lookupLeast is the time between two look-ups of a name, however often the
// configuration is reloaded.
const lookupLeast = time.Second

// maxAnswer bounds the engines of one name.
const maxAnswer = 10_000

// dnsAnswer is what a name led to.
type dnsAnswer struct {
	places  []place  // names and URLs of engines, sorted
	leftOut []string // records that can be no engines
}

// lookup asks for one name. An answer without records is an answer; everything
// that keeps us from knowing is an error.
//
// IPv4 addresses are taken where there are any, else IPv6: a pod with one of
// each is one engine. The two are asked one after the other, so that a failure
// of one question is never taken for the absence of such addresses.
func lookup(ctx context.Context, r *net.Resolver, e dnsEntry) (dnsAnswer, error) {
	if e.port == "" {
		return lookupSRV(ctx, r, e)
	}
	var a dnsAnswer
	addrs, err := r.LookupNetIP(ctx, "ip4", e.name)
	if notFound(err) {
		addrs, err = r.LookupNetIP(ctx, "ip6", e.name)
	}
	if notFound(err) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	for _, ip := range addrs {
		ip = ip.Unmap()
		if DeniedAddress(ip) || ip.IsUnspecified() || ip.IsMulticast() {
			a.leftOut = append(a.leftOut, ip.String()+" is no address for engines")
			continue
		}
		a.add("http", ip.String(), e.port)
	}
	return a.sorted()
}

// lookupSRV takes the records of the most preferred priority: the others are
// stand-ins, which the gateway has no notion of. Weights are not read: shares
// follow capacity.
func lookupSRV(ctx context.Context, r *net.Resolver, e dnsEntry) (dnsAnswer, error) {
	var a dnsAnswer
	_, records, err := r.LookupSRV(ctx, "", "", e.name)
	if notFound(err) {
		return a, nil
	}
	if err != nil { // also where some records are good: a part is not the answer
		return a, err
	}
	scheme := "http"
	if e.tls {
		scheme = "https"
	}
	for _, s := range records {
		host := strings.ToLower(strings.TrimSuffix(s.Target, "."))
		switch ip, err := netip.ParseAddr(host); {
		case s.Priority != slices.MinFunc(records, func(x, y *net.SRV) int { return int(x.Priority) - int(y.Priority) }).Priority:
			a.leftOut = append(a.leftOut, fmt.Sprintf("%s has priority %d, others a lower one", s.Target, s.Priority))
		case host == "": // RFC 2782: decidedly not offered here
		case s.Port == 0 || err == nil && DeniedAddress(ip):
			a.leftOut = append(a.leftOut, fmt.Sprintf("%s port %d is no address for engines", s.Target, s.Port))
		default:
			a.add(scheme, host, strconv.Itoa(int(s.Port)))
		}
	}
	return a.sorted()
}

func (a *dnsAnswer) add(scheme, host, port string) {
	at := net.JoinHostPort(host, port)
	a.places = append(a.places, place{name: nameOf(at), url: scheme + "://" + at})
}

func (a *dnsAnswer) sorted() (dnsAnswer, error) {
	slices.SortFunc(a.places, func(x, y place) int { return strings.Compare(x.url, y.url) })
	a.places = slices.Compact(a.places)
	if len(a.places) > maxAnswer {
		return *a, fmt.Errorf("%d records: want at most %d", len(a.places), maxAnswer)
	}
	slices.Sort(a.leftOut)
	return *a, nil
}

// notFound is NXDOMAIN, or a name without such records.
func notFound(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// reasonOf is an error of a look-up without what changes with every one.
func reasonOf(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsTimeout {
			return "no answer in time"
		}
		return dns.Err
	}
	return err.Error()
}

// watchName looks a name up until ctx ends, every lookupEvery +-20 %: the
// system's resolver tells no time to live, and one that caches keeps to it.
func (d *Discovery) watchName(ctx context.Context, l *watchedName) {
	r := d.Resolver
	if r == nil {
		r = net.DefaultResolver
	}
	for {
		asked := time.Now()
		within, cancel := context.WithTimeout(ctx, discoverTimeout)
		a, err := lookup(within, r, l.dns)
		cancel()
		if ctx.Err() != nil {
			return
		}
		d.answered(l, a, err)
		if !pause(ctx, spread(lookupEvery, rand.Float64()), l.now) || !pause(ctx, lookupLeast-time.Since(asked), nil) {
			return
		}
	}
}
