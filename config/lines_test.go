package config

import "testing"

func TestLinesOfKeys(t *testing.T) {
	const text = "\ufeff# [not.a.table]\n" + // 1
		"top = \"a # b [c]\" # d = 1\n" + // 2
		"a.b.c = 1\r\n" + // 3
		"a.b.d = '''\n[x]\ny = 1\n''''\n" + // 4-7
		"list = [\n  1, # ]\n  [2,\n 3],\n \"]\", ]\n" + // 8-12
		"[t . \"q.r\"]\n" + // 13
		"k = { i = 1, \"j j\" = [ { z = \"}\" },\n { z = 2 } ] }\n" + // 14-15
		"m = \"\"\"one \\\"\"\" two\n\"\"\"\"\"\n" + // 16-17
		"[[s]]\n" + // 18
		"n = 1\n" + // 19
		"[[s.u]]\nv = 1\n" + // 20-21
		"[[s.u]]\nv = 1\n" + // 22-23
		"[s.w]\nx = 1979-05-27 07:32:00\n" + // 24-25
		"[[s]]\nn = \"\\\\\"\n" + // 26-27
		"[s.w]\nx = 1" // 28-29
	lines := indexLines(text)
	for path, want := range map[string]int{
		"top": 2, "a": 3, "a.b": 3, "a.b.c": 3, "a.b.d": 4,
		"list": 8, "list[0]": 9, "list[1]": 10, "list[1][0]": 10, "list[1][1]": 11, "list[2]": 12,
		`t."q.r"`: 13, `t."q.r".k.i`: 14, `t."q.r".k."j j"[0].z`: 14, `t."q.r".k."j j"[1].z`: 15, `t."q.r".m`: 16,
		"s": 18, "s[0].n": 19, "s[0].u[0].v": 21, "s[0].u[1]": 22, "s[0].u[1].v": 23, "s[0].w.x": 25,
		"s[1]": 26, "s[1].n": 27, "s[1].w": 28, "s[1].w.x": 29,
		// What is not there is where its holder is.
		"s[1].w.y": 28, `s[0].u[1]."a.b[c"`: 22, "s[7]": 18, "nowhere": 1,
	} {
		if got := lines.line(path); got != want {
			t.Errorf("%s is on line %d, want %d", path, got, want)
		}
	}
	if _, there := lines.at["not"]; there || lines.tooDeep > 0 {
		t.Errorf("a comment was read: %v", lines.at)
	}
}
