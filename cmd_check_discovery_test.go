package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckReadsTheFilesOfEngines(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := put("p.toml", `
gateway = { name = "gw-1", source = "us-east" }
discovery = { dns = ["pods.svc:8000"], file_sd = ["*.json", "late.yml"], engine = { dialect = "vllm" } }
[[engine]]
name = "a1"
url = "http://127.0.0.1:8001"
`)
	good := put("a.json", `[{"targets": ["10.0.0.7:8000", "127.0.0.1:8001"], "labels": {"capacity": "20"}}]`)
	code, stdout, stderr := penstock(t, "check", "--config", path)
	want := `gateway gw-1 in us-east
clients at http://127.0.0.1:8080, operators at http://127.0.0.1:8081

ENGINE         URL                    CLUSTER  DIALECT  MODELS         CAPACITY   MAX IN FLIGHT
a1             http://127.0.0.1:8001  us-east  auto     asked from it  not given  learned
10.0.0.7-8000  http://10.0.0.7:8000   us-east  vllm     asked from it  20/s       learned

discovery.dns pods.svc:8000: looked up by serve
discovery.file_sd ` + good + `: 2 engines
discovery.file_sd late.yml: no file matches
left out: http://127.0.0.1:8001 of file_sd ` + good + ` is a1 of config
`
	if code != exitDone || stderr != "" || stdout != want {
		t.Errorf("exit %d, stderr %q, stdout\n%swant\n%s", code, stderr, stdout, want)
	}
	bad := put("b.json", "[{\"targets\": [\"h\",\n\"h:0\"],\n\"labels\": {\"capacity\": \"x\", \"max_in_flight\": \"y\"}}]")
	code, stdout, stderr = penstock(t, "check", "--config", path)
	if n := strings.Count(stderr, bad+":"); code != exitFailed || n != 4 || !strings.Contains(stdout, "discovery.file_sd "+bad+": cannot be used") {
		t.Errorf("exit %d, %d faults, want 4: %s", code, n, stderr)
	}
	code, stdout, _ = penstock(t, "check", "--config", path, "--json")
	if code != exitFailed || !strings.Contains(stdout, `"ok": false`) || !strings.Contains(stdout, `"name": "10.0.0.7-8000"`) {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}
