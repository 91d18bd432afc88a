package enginetest

import (
	"net"
	"net/http"
	"strconv"
)

const (
	htmlPage = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n</body>\r\n</html>\r\n"
	notHTTP  = "\x15\x03\x01\x00\x02\x02\x46 this is not HTTP\r\n\r\n"
)

// take is the connection below an answer, after what was flushed.
func take(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not a connection of its own
	}
	return conn
}

// sever closes that connection, with a FIN or with a RST.
func sever(w http.ResponseWriter, reset bool) {
	conn := take(w)
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// hang answers nothing more. It returns when the client has left, and breaks
// the connection when the engine stops.
func (s *Sim) hang(r *http.Request) ending {
	select {
	case <-r.Context().Done():
		return disconnected
	case <-s.stopped:
		panic(http.ErrAbortHandler)
	}
}

// failBefore plays the faults that need no answer.
func (s *Sim) failBefore(w http.ResponseWriter, r *http.Request, in *input) (end ending, hit bool) {
	f := in.fault
	switch f.Kind {
	case ResetBefore:
		sever(w, true)
	case Silent:
		return s.hang(r), true
	case Garbage:
		conn := take(w)
		_, _ = conn.Write([]byte(notHTTP))
		_ = conn.Close()
	case ResetHeaders, HeadersOnly:
		kind := "application/json"
		if in.Stream {
			kind = "text/event-stream; charset=utf-8"
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		if f.Kind == HeadersOnly {
			return s.hang(r), true
		}
		sever(w, true)
	case HTML:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte(htmlPage))
	case Status:
		message := "The engine was told to answer " + strconv.Itoa(f.N) + "."
		if f.N == http.StatusServiceUnavailable {
			message = engineBusy
		}
		writeError(w, f.N, errorFor(f.N, message))
	case Empty:
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	default:
		return faulted, false
	}
	return faulted, true
}

// failAt is the number of content events that an answer has when its fault
// strikes; -1 if it runs to its end.
func failAt(f Fault, c *call) int {
	total := 0
	for _, ch := range c.choices {
		total += ch.Out
	}
	switch f.Kind {
	case ResetAfter, CutAfter, NoDone, ErrorAfter, StallAfter, BadJSONAfter:
		return min(f.N, total-1)
	case Truncate:
		return total / 2
	}
	return -1
}

// failNow plays a stream's fault in the place of the next token of the i-th
// choice. Not over: the stream goes on.
func (st *stream) failNow(i int) (end ending, over bool) {
	switch st.in.fault.Kind {
	case ResetAfter:
		sever(st.w, true)
	case CutAfter:
		sever(st.w, false)
	case StallAfter:
		return st.sim.hang(st.r), true
	case BadJSONAfter:
		event := st.content(i)
		cut := append(event[:len(event)/2], "\n\n"...)
		if !st.write(cut) {
			return disconnected, true
		}
		return faulted, false
	case ErrorAfter:
		st.write(st.errorEvent(http.StatusInternalServerError))
	}
	// NoDone ends here by itself, Truncate by the Content-Length it promised.
	return faulted, true
}

// fail is the stream whose first event is an error.
func (st *stream) fail() ending {
	st.write(st.errorEvent(st.in.fault.N))
	return faulted
}

// failWhole plays a fault on an answer that is not streamed: half of its body
// stands for the events of a stream.
func (s *Sim) failWhole(w http.ResponseWriter, r *http.Request, in *input, body []byte) (end ending, hit bool) {
	half := body[:len(body)/2]
	rc := http.NewResponseController(w)
	switch in.fault.Kind {
	case ErrorFirst:
		writeError(w, in.fault.N, errorFor(in.fault.N, engineDied))
		return faulted, true
	case ErrorAfter:
		writeError(w, http.StatusInternalServerError, errorFor(http.StatusInternalServerError, engineDied))
		return faulted, true
	case NoDone: // chunked, with a proper end
		_, _ = w.Write(half)
		_ = rc.Flush()
		return faulted, true
	case BadJSONAfter:
		w.Header().Set("Content-Length", strconv.Itoa(len(half)))
		_, _ = w.Write(half)
		return faulted, true
	case ResetAfter, CutAfter, StallAfter, Truncate:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(half)
		_ = rc.Flush()
	default:
		return faulted, false
	}
	switch in.fault.Kind {
	case StallAfter:
		return s.hang(r), true
	case ResetAfter, CutAfter:
		sever(w, in.fault.Kind == ResetAfter)
	}
	return faulted, true // Truncate: the server closes what is short of its length
}
