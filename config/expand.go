package config

import (
	"fmt"
	"strings"
)

// expand replaces ${VAR} and ${VAR:-default} in a value; the default also
// stands in for a variable that is set and empty, as in a shell. $${ is a
// literal ${. The error names the variable, never a value.
func expand(s string, env func(string) (string, bool)) (string, error) {
	if !strings.Contains(s, "${") {
		return s, nil
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		if !found {
			out.WriteString(s)
			return out.String(), nil
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "${")
			s = rest
			continue
		}
		out.WriteString(before)
		inside, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fmt.Errorf(`"${" without its "}"; write "$${" for the text itself`)
		}
		name, fallback, hasFallback := strings.Cut(inside, ":-")
		if !isVariable(name) {
			return "", fmt.Errorf(`want ${VARIABLE} or ${VARIABLE:-default}; write "$${" for the text itself`)
		}
		value, set := env(name)
		switch {
		case hasFallback && value == "":
			value = fallback
		case !set:
			return "", fmt.Errorf("the environment variable %s is not set; ${%s:-default} has a default", name, name)
		}
		out.WriteString(value)
		s = after
	}
}

func isVariable(name string) bool {
	return name != "" && !(name[0] >= '0' && name[0] <= '9') && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_')
	})
}
