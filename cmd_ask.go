package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// What commands share that ask a running gateway over its admin listener.

const (
	defaultAdmin = "127.0.0.1:8081"
	askTimeout   = 10 * time.Second
	maxAnswer    = 256 << 20 // bytes; a table of a large fleet has millions of weights
)

func addAdminFlag(cmd *cobra.Command, admin *string) {
	cmd.Flags().StringVar(admin, "admin", defaultAdmin, "`HOST:PORT` of the gateway's admin listener (its admin.address)")
}

// errNoSuch is a 404 of the admin listener.
var errNoSuch = errors.New("not found")

// askAdmin gets one JSON document from the admin listener.
func askAdmin(ctx context.Context, admin, path string) (json.RawMessage, error) {
	return callAdmin(ctx, http.MethodGet, admin, path)
}

// callAdmin sends one request without a body; the answer is a JSON document.
func callAdmin(ctx context.Context, method, admin, path string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	admin = strings.TrimSuffix(strings.TrimPrefix(admin, "http://"), "/") // as it is copied from a browser
	req, err := http.NewRequestWithContext(ctx, method, "http://"+admin+path, nil)
	if _, port, split := net.SplitHostPort(admin); err != nil || split != nil || port == "" || req.URL.Host != admin {
		return nil, usagef("--admin %q: want HOST:PORT, such as %s", admin, defaultAdmin)
	}
	transport := &http.Transport{Proxy: nil} // an admin listener is never behind a proxy of the environment
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the admin listener at %s (%s): is the gateway running there (penstock serve), and is this its admin.address? --admin HOST:PORT names another",
			admin, whyUnreachable(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", admin, err)
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, errNoSuch
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the admin listener at %s answered %s: %s", admin, resp.Status, firstLine(body))
	case !json.Valid(body):
		return nil, notAdmin(admin)
	}
	return body, nil
}

// notAdmin is for answers that no gateway's admin listener gives.
func notAdmin(admin string) error {
	return fmt.Errorf("what answers at %s is not a gateway's admin listener: --admin wants its admin.address, not the address for clients", admin)
}

// whyUnreachable is the cause without the address, which the sentence has.
func whyUnreachable(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in " + askTimeout.String()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err.Error()
	}
	return err.Error()
}

// decodeAnswer reads what the command knows of an answer; more is no fault.
func decodeAnswer(admin string, body json.RawMessage, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w (%w)", notAdmin(admin), err)
	}
	return nil
}

func firstLine(body []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), 300)])), "\n")
	return plainText(line)
}

// ago says how long before now an instant was, in the largest fitting unit.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	switch d := now.Sub(t); {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

func requestPath(id string) string { return "/requests/" + url.PathEscape(id) }
