package proxy

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// engineFile is one recorded HTTP response.
type engineFile struct {
	status int
	header http.Header
	body   []byte
	clean  bool // ended by the framing's own end
}

func (f engineFile) stream() bool {
	return f.status == 200 && strings.HasPrefix(f.header.Get("Content-Type"), "text/event-stream")
}

func engineFiles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/engines/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no recorded answers", err)
	}
	for i, p := range paths {
		paths[i] = filepath.Base(p)
	}
	return paths
}

func readEngineFile(t testing.TB, name string) engineFile {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/engines", name))
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := bytes.Cut(b, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	status := strings.Fields(lines[0])
	if !ok || len(status) < 2 {
		t.Fatalf("%s is no HTTP response", name)
	}
	f := engineFile{header: http.Header{}}
	if f.status, err = strconv.Atoi(status[1]); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[1:] {
		k, v, _ := strings.Cut(l, ":")
		f.header.Add(k, strings.TrimSpace(v))
	}
	f.body, f.clean = bytes.CutSuffix(body, []byte("<<NO-FINAL-CHUNK>>"))
	f.clean = !f.clean
	return f
}

// answerOf is how the answer of the path that was called is read.
func answerOf(name string) answerKind {
	for _, k := range []struct {
		part string
		kind answerKind
	}{
		{"_responses", answerResponses}, {"_messages_count", answerAny}, {"_messages", answerMessages},
		{"_native", answerNative}, {"_tokenize", answerAny}, {"_rerank", answerAny},
	} {
		if strings.Contains(name, k.part) && !strings.Contains(name, "err_m") {
			return k.kind
		}
	}
	return answerChat
}

func TestEngineAnswers(t *testing.T) {
	var b strings.Builder
	for _, name := range engineFiles(t) {
		f := readEngineFile(t, name)
		fmt.Fprintf(&b, "== %s\n", strings.TrimSuffix(name, ".txt"))
		switch {
		case f.stream():
			describeStream(t, &b, f, answerOf(name))
		case f.status == 200:
			a := new(answer)
			a.Begin(answerOf(name), false, true)
			fmt.Fprintf(&b, "body %v, usage %+v\n", a.judgeBody(f.body), a.usage)
		default:
			e := engineError(f.body)
			o, c := classify(attemptFacts{End: endStatus, Status: f.status, BodySent: true})
			fmt.Fprintf(&b, "status %d %v %v, names no-such-model %v\n%+v\n", f.status, o, c, namesModel(f.body, "no-such-model"), e)
		}
	}
	const golden = "testdata/engines/judgement.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("the judgement changed; see it with -update and git diff\n%s", firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return "one is longer"
}

func describeStream(t *testing.T, b *strings.Builder, f engineFile, kind answerKind) {
	j := judgeStreamOf(t, kind, [][]byte{f.body}, f.clean)
	commit := -1
	for i, v := range j.verdicts {
		if v == verdictFirstContent {
			commit = i
		}
		fmt.Fprintf(b, "%d %v\n", i, v)
	}
	fmt.Fprintf(b, "commit %d, tokens %d, clean %v, ending %v\nusage %+v\n", commit, j.tokens, f.clean, j.ending, j.usage)
	if j.fault != (engineFault{}) {
		o, c := classify(attemptFacts{End: endErrorEvent, Status: j.fault.Status, BodySent: true, Committed: commit >= 0})
		fmt.Fprintf(b, "fault %+v: %v %v\n", j.fault, o, c)
	}
}
