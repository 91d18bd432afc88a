package engine

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// sdGroup is one element of a Prometheus file_sd list, with the lines of what
// is in it.
type sdGroup struct {
	targets []sdText
	labels  []sdLabel
}

type sdText struct {
	text string
	line int
}

type sdLabel struct {
	name string
	sdText
}

// sdError is what keeps a file from being read at all.
type sdError struct {
	line   int
	reason string
}

func (e *sdError) Error() string { return e.reason }

func sdWant(line int, what string) error { return &sdError{line, "want " + what} }

const (
	wantGroups  = `a list of {"targets": ["HOST:PORT"], "labels": {"name": "value"}}`
	wantTargets = `targets: a list of texts such as "10.0.0.1:8000"`
	wantLabels  = "labels: names with a text each"
)

// parseGroupsJSON reads a .json file. Names that are not file_sd's, and names
// that come twice, are errors.
func parseGroupsJSON(text []byte) ([]sdGroup, error) {
	p := &jsonGroups{text: text, dec: jsontext.NewDecoder(bytes.NewReader(text))}
	groups, err := p.groups()
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax):
		return nil, &sdError{p.line(int(syntax.ByteOffset)), "not JSON: " + syntax.Err.Error()}
	case errors.Is(err, io.EOF):
		return nil, sdWant(1, wantGroups+"; it is empty")
	case err != nil:
		return nil, err
	}
	return groups, nil
}

type jsonGroups struct {
	text []byte
	dec  *jsontext.Decoder
}

// line is the line of a byte; faults are few, so it counts from the start.
func (p *jsonGroups) line(offset int) int {
	return 1 + bytes.Count(p.text[:min(offset, len(p.text))], []byte("\n"))
}

func (p *jsonGroups) want(what string) error {
	return sdWant(p.line(int(p.dec.InputOffset())), what)
}

// open reads the bracket that begins a list or an object; null stands for an
// empty one where that is allowed.
func (p *jsonGroups) open(kind jsontext.Kind, orNull bool, want string) (there bool, err error) {
	t, err := p.dec.ReadToken()
	switch {
	case err != nil:
		return false, err
	case orNull && t.Kind() == 'n':
		return false, nil
	case t.Kind() != kind:
		return false, p.want(want)
	}
	return true, nil
}

// rest calls each for every element or member up to the closing bracket.
func (p *jsonGroups) rest(end jsontext.Kind, each func() error) error {
	for p.dec.PeekKind() != end {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return err
}

func (p *jsonGroups) str(want string) (sdText, error) {
	t, err := p.dec.ReadToken()
	if err != nil {
		return sdText{}, err
	}
	if t.Kind() != '"' {
		return sdText{}, p.want(want)
	}
	return sdText{t.String(), p.line(int(p.dec.InputOffset()))}, nil
}

func (p *jsonGroups) groups() (groups []sdGroup, err error) {
	if _, err := p.open('[', false, wantGroups); err != nil {
		return nil, err
	}
	err = p.rest(']', func() error {
		g, err := p.group()
		groups = append(groups, g)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return nil, p.want("nothing after the list")
	}
	return groups, nil
}

func (p *jsonGroups) group() (g sdGroup, err error) {
	if _, err := p.open('{', false, wantGroups); err != nil {
		return g, err
	}
	return g, p.rest('}', func() error {
		name, err := p.str(wantGroups)
		if err != nil {
			return err
		}
		switch name.text {
		case "targets":
			there, err := p.open('[', true, wantTargets)
			if err != nil || !there {
				return err
			}
			return p.rest(']', func() error {
				target, err := p.str(wantTargets)
				g.targets = append(g.targets, target)
				return err
			})
		case "labels":
			there, err := p.open('{', true, wantLabels)
			if err != nil || !there {
				return err
			}
			return p.rest('}', func() error {
				label, err := p.str(wantLabels)
				if err != nil {
					return err
				}
				value, err := p.str(wantLabels)
				g.labels = append(g.labels, sdLabel{label.text, value})
				return err
			})
		}
		return p.want(`only "targets" and "labels"`)
	})
}

// parseGroupsYAML reads a .yml or .yaml file: one document, no anchors.
func parseGroupsYAML(text []byte) (groups []sdGroup, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, sdWant(1, wantGroups+"; it is empty")
	case err != nil:
		return nil, &sdError{1, "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if len(doc.Content) == 0 {
		return nil, sdWant(1, wantGroups)
	}
	if err := dec.Decode(&more); err != io.EOF {
		return nil, sdWant(1, "one document")
	}
	list, err := yamlPart(doc.Content[0], yaml.SequenceNode, wantGroups)
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		g, err := yamlGroup(n)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func yamlGroup(n *yaml.Node) (g sdGroup, err error) {
	err = yamlMembers(n, wantGroups, func(name string, v *yaml.Node) error {
		if v.Tag == "!!null" {
			v = &yaml.Node{Kind: yaml.MappingNode}
			if name == "targets" {
				v.Kind = yaml.SequenceNode
			}
		}
		switch name {
		case "targets":
			list, err := yamlPart(v, yaml.SequenceNode, wantTargets)
			for _, t := range list {
				if err := yamlScalar(t, wantTargets); err != nil {
					return err
				}
				g.targets = append(g.targets, sdText{t.Value, t.Line})
			}
			return err
		case "labels":
			return yamlMembers(v, wantLabels, func(label string, v *yaml.Node) error {
				g.labels = append(g.labels, sdLabel{label, sdText{v.Value, v.Line}})
				return yamlScalar(v, wantLabels)
			})
		}
		return sdWant(n.Line, `only "targets" and "labels"`)
	})
	return g, err
}

func yamlPart(n *yaml.Node, kind yaml.Kind, want string) ([]*yaml.Node, error) {
	if n.Kind != kind {
		return nil, sdWant(n.Line, want)
	}
	return n.Content, nil
}

func yamlMembers(n *yaml.Node, want string, each func(name string, v *yaml.Node) error) error {
	pairs, err := yamlPart(n, yaml.MappingNode, want)
	seen := map[string]bool{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name := pairs[i]
		if err := yamlScalar(name, want); err != nil {
			return err
		}
		if seen[name.Value] {
			return sdWant(name.Line, "each name once")
		}
		seen[name.Value] = true
		if err := each(name.Value, pairs[i+1]); err != nil {
			return err
		}
	}
	return err
}

// yamlScalar accepts any plain value, as Prometheus does: a number is a text.
func yamlScalar(n *yaml.Node, want string) error {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Tag == "!!merge" {
		return sdWant(n.Line, want)
	}
	return nil
}
