package enginetest

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Departure is how a connection of a Script ended.
type Departure uint8

const (
	Connected   Departure = iota // it has not
	PeerClosed                   // the peer sent a FIN
	PeerReset                    // the peer sent a RST
	ClosedByUs                   // the play, or Close, closed it
	ResetByUs                    // the play reset it
	BrokenInput                  // the peer sent what is not HTTP
)

func (d Departure) String() string {
	return [...]string{"connected", "peer closed", "peer reset", "closed by us", "reset by us", "broken input"}[d]
}

// Connection is what a Script knows of one connection.
type Connection struct {
	Opened   time.Time
	Requests int // whose head and body arrived whole, pages included
	Ended    Departure
	EndedAt  time.Time
}

// Page is a canned answer to requests for one path.
type Page struct {
	Status      int // 0 = 200
	ContentType string
	Server      string // Server header
	Body        string
	Delay       time.Duration // before the answer
}

// Play writes the answer to one request. When it returns, what it wrote must
// be a whole HTTP response, or it must have closed or reset the connection.
type Play func(x *Exchange)

// Script is an engine of which a test writes every byte, on a real loopback
// listener. Pages answer GETs of their paths; everything else is played.
type Script struct {
	ln      net.Listener
	closed  chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex // guards what is below
	play      Play
	pages     map[string]Page
	whole     bool // no GET is played
	hits      map[string]int
	conns     []*scriptConn
	exchanges []*Exchange
}

// idleMetrics is the metrics page of a vLLM with nothing to do.
const idleMetrics = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0
`

// StartScript listens on a free loopback port and plays every request until
// Close. It begins as a healthy and idle vLLM that serves the model "m".
func StartScript(play Play) (*Script, error) { return StartScriptAt("127.0.0.1:0", play) }

// StartScriptAt is StartScript on an address of the caller's, for an engine
// that comes back where it was.
func StartScriptAt(address string, play Play) (*Script, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Script{ln: ln, closed: make(chan struct{}), play: play, hits: make(map[string]int), pages: map[string]Page{
		"/health":  {},
		"/version": {ContentType: "application/json", Body: `{"version":"` + version + `"}`},
	}}
	s.SetModels("m")
	s.SetMetrics(idleMetrics)
	s.running.Go(s.accept)
	return s, nil
}

// URL is the root of the engine's API.
func (s *Script) URL() string { return "http://" + s.ln.Addr().String() }

// SetPlay replaces the play for requests to come.
func (s *Script) SetPlay(play Play) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.play = play
}

// SetPage replaces one canned answer, also while the engine runs. It is to GET
// unless the path begins with another method, as in "POST /v2/repository/index".
func (s *Script) SetPage(path string, p Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = p
}

// SetPages makes pages all that the engine has: it begins anew as an engine of
// another kind. GETs of what is not among them are 404, not played.
func (s *Script) SetPages(pages map[string]Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages, s.whole = maps.Clone(pages), true
}

// SetHealth makes GET /health answer that status with an empty body.
func (s *Script) SetHealth(status int) { s.SetPage("/health", Page{Status: status}) }

// SetModels makes GET /v1/models list those names.
func (s *Script) SetModels(names ...string) {
	body, err := json.Marshal(listModels(names, time.Now().Unix(), 1<<16))
	if err != nil {
		panic(err) // strings and numbers only
	}
	s.SetPage("/v1/models", Page{ContentType: "application/json", Body: string(body)})
}

// SetMetrics makes GET /metrics answer that text.
func (s *Script) SetMetrics(text string) {
	s.SetPage("/metrics", Page{ContentType: "text/plain; version=1.0.0; charset=utf-8", Body: text})
}

// PageHits is how often a canned answer was asked for.
func (s *Script) PageHits(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[path]
}

// Exchanges returns the requests that were played, in order of arrival.
func (s *Script) Exchanges() []*Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.exchanges)
}

// Connections returns a copy of what is known of every connection, in the
// order in which they were opened; Exchange.Conn is an index of it.
func (s *Script) Connections() []Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Connection, 0, len(s.conns))
	for _, c := range s.conns {
		out = append(out, c.Connection)
	}
	return out
}

// Close ends all connections and waits for every play to return. Pauses of
// plays end at once.
func (s *Script) Close() {
	s.mu.Lock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	_ = s.ln.Close()
	for _, c := range conns {
		c.end(ClosedByUs)
	}
	s.running.Wait()
}

func (s *Script) accept() {
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		c := &scriptConn{script: s, conn: conn.(*net.TCPConn), index: len(s.conns), Connection: Connection{Opened: time.Now()}}
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.running.Go(c.serve)
		select {
		case <-s.closed:
			c.end(ClosedByUs) // Close may have missed it
		default:
		}
	}
}

// page finds the canned answer to a request.
func (s *Script) page(r *http.Request) (Page, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	if r.Method != http.MethodGet {
		path = r.Method + " " + path
	}
	p, ok := s.pages[path]
	switch {
	case ok:
		s.hits[path]++
	case s.whole && r.Method == http.MethodGet:
		p, ok = Page{Status: http.StatusNotFound}, true
	}
	return p, ok
}

// begin records a request that is to be played.
func (s *Script) begin(x *Exchange) Play {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.Index = len(s.exchanges)
	s.exchanges = append(s.exchanges, x)
	return s.play
}
