package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

// runSimCommand runs `penstock sim` with these arguments and returns the
// address of its ready line, and a function that stops it.
func runSimCommand(t *testing.T, args ...string) (address string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	cmd := newSimCommand()
	cmd.SetArgs(args)
	cmd.SetErr(w)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = w.CloseWithError(fmt.Errorf("the command has ended: %w", errors.Join(err, io.EOF)))
		ended <- err
	}()
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ready struct{ Msg, Address string }
	if err := json.Unmarshal([]byte(line), &ready); err != nil || ready.Msg != "ready" {
		t.Fatalf("not a ready line: %s", line)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return ready.Address, func() error { cancel(); return <-ended }
}

func TestSimServesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	address, stop := runSimCommand(t, "--listen", "127.0.0.1:0", "--name", "a1", "--model", "one", "--model", "two",
		"--ttft", "0", "--tbot", "0", "--max-model-len", "500", "--fault", "status=418@0.000001", "--fault", "slow=2")
	url := "http://" + address
	get := func(path string) string {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
		return string(body)
	}
	get("/health")
	if models := get("/v1/models"); !strings.Contains(models, `"id":"two"`) || !strings.Contains(models, `"max_model_len":500`) {
		t.Error(models)
	}
	if faults := get("/sim/faults"); faults != `{"faults":["status=418@1e-06","slow=2"]}` {
		t.Error(faults)
	}
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model":"two","prompt":"x","max_tokens":9}`))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Choices []struct{ Text string } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if len(answer.Choices) != 1 || !enginetest.Complete(answer.Choices[0].Text) {
		t.Errorf("%+v", answer)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func TestSimRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--slots 0", "from 1"},
		{"--slots many", "from 1"},
		{"--kv-tokens 15", "from 16"},
		{"--queue-limit -1", "from 0"},
		{"--tbot fast", "a duration like"},
		{"--ttft -1s", "not below 0"},
		{"--fault explode", "known are refuse"},
		{"--fault reset-after", "needs a value"},
		{"--listen 8001", "want HOST:PORT"},
		{"--max-model-len 65537", "does not fit"},
		{"more", "want no argument"},
	} {
		cmd := newSimCommand()
		cmd.SetArgs(strings.Fields(c.args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestSimFailsOnATakenAddress(t *testing.T) {
	t.Parallel()
	address, stop := runSimCommand(t, "--listen", "127.0.0.1:0")
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	cmd := newSimCommand()
	cmd.SetArgs([]string{"--listen", address})
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	if _, usage := errors.AsType[usageError](err); err == nil || usage {
		t.Errorf("%v", err)
	}
}
