package proxy

import (
	"bytes"
	"mime"
	"strings"
	"unicode/utf8"
)

const (
	maxFormParts    = 128
	maxPartHeader   = 4 << 10 // bytes of one part's header
	maxFormValue    = maxModelBytes
	maxFormBoundary = 70 // of RFC 2046
)

// ScanForm fills env from a multipart form: it finds the model among the
// parts and passes over the files. It is stricter than the standards, so that
// no reader behind it can find another model than it did: no preamble, no
// repeated field, no line ends but CRLF, nothing behind the end.
func (s *Scanner) ScanForm(contentType string, body []byte, env *Envelope) error {
	*env = Envelope{API: APIForm}
	boundary, err := formBoundary(contentType)
	if err != nil {
		return err
	}
	f := form{body: body, delimiter: "\r\n--" + boundary, env: env}
	if !bytes.HasPrefix(body, []byte(f.delimiter[2:])) {
		return badRequest("", "the form does not begin with its boundary")
	}
	f.at = len(f.delimiter) - 2
	for n := 0; ; n++ {
		last, err := f.boundaryEnd()
		if err != nil {
			return err
		}
		if last {
			break
		}
		if n == maxFormParts {
			return badRequest("", "the form has more than %d parts", maxFormParts)
		}
		if err := f.part(s); err != nil {
			return err
		}
	}
	if env.Model == "" {
		return badRequest("model", "model is missing")
	}
	return nil
}

// formBoundary reads the boundary of a Content-Type.
func formBoundary(contentType string) (string, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"]
	switch {
	case err != nil || kind != "multipart/form-data":
		return "", badRequest("content-type", "this path takes multipart/form-data")
	case boundary == "" || len(boundary) > maxFormBoundary || strings.ContainsAny(boundary, "\r\n"):
		return "", badRequest("content-type", "the form's boundary is missing or too long")
	}
	return boundary, nil
}

// form is a form being read.
type form struct {
	body      []byte
	at        int
	delimiter string // CRLF included
	env       *Envelope
	stream    bool // the field was there
}

// boundaryEnd reads what follows a boundary: the end of its line, or of the form.
func (f *form) boundaryEnd() (last bool, err error) {
	rest := f.body[f.at:]
	switch {
	case bytes.HasPrefix(rest, []byte("\r\n")):
		f.at += 2
		return false, nil
	case bytes.Equal(rest, []byte("--")), bytes.Equal(rest, []byte("--\r\n")):
		return true, nil
	}
	return false, badRequest("", "the form's boundary is not followed by a line's end, at byte %d", f.at)
}

// part reads one part up to the boundary after it.
func (f *form) part(s *Scanner) error {
	end := bytes.Index(f.body[f.at:], []byte("\r\n\r\n"))
	if end < 0 || end > maxPartHeader {
		return badRequest("", "the form is cut, or has a part's header of more than %d bytes, at byte %d", maxPartHeader, f.at)
	}
	name, file, plain, err := partHeader(string(f.body[f.at : f.at+end]))
	if err != nil {
		return err
	}
	from := f.at + end + len("\r\n\r\n")
	size := bytes.Index(f.body[from:], []byte(f.delimiter))
	switch {
	case size < 0:
		return badRequest("", "the form is cut: its last boundary is missing")
	case bytes.HasPrefix(f.body[from:], []byte(f.delimiter[2:])): // some readers end an empty part here
		return badRequest("", "a part of the form begins with the boundary, at byte %d", from)
	}
	f.at = from + size + len(f.delimiter)
	value := f.body[from : from+size]
	if known := formField(name); known != "" {
		switch {
		case name != known:
			return badRequest(known, "field %s differs from %q only in case", quoteName(name), known)
		case file || !plain || len(value) > maxFormValue || !utf8.Valid(value):
			return badRequest(known, "%s is not a short plain text", known)
		}
	}
	switch name {
	case "model":
		if f.env.Model != "" {
			return badRequest("model", "duplicate field %q", "model")
		}
		if len(value) == 0 {
			return badRequest("model", "model is empty")
		}
		f.env.Model, f.env.ModelFrom, f.env.ModelTo = s.intern(value), from, from+size
	case "stream":
		if f.stream {
			return badRequest("stream", "duplicate field %q", "stream")
		}
		f.stream, f.env.Stream = true, string(value) == "true"
	}
	return nil
}

// formField is the name that the gateway reads and that name is, or would be
// taken for by a reader that ignores case; "" for all others.
func formField(name string) string {
	for _, known := range [...]string{"model", "stream"} {
		if strings.EqualFold(name, known) {
			return known
		}
	}
	return ""
}

// partHeader reads a part's header lines. plain says that its content stands
// as it is.
func partHeader(lines string) (name string, file, plain bool, err error) {
	plain = true
	seen := false
	for line := range strings.SplitSeq(lines, "\r\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(key, " \t") || strings.ContainsAny(line, "\r\n\x00") {
			return "", false, false, badRequest("", "a part of the form has a header line that cannot be read")
		}
		switch strings.ToLower(key) {
		case "content-transfer-encoding":
			plain = plain && strings.EqualFold(strings.TrimSpace(value), "binary")
		case "content-disposition":
			kind, params, parseErr := mime.ParseMediaType(value)
			if seen || parseErr != nil || kind != "form-data" || params["name"] == "" || extendedName(value) {
				return "", false, false, badRequest("", "a part of the form does not say its name once and plainly")
			}
			seen = true
			name = params["name"]
			_, file = params["filename"]
		}
	}
	if !seen {
		return "", false, false, badRequest("", "a part of the form has no Content-Disposition")
	}
	return name, file, plain, nil
}

// extendedName reports a name in the form of RFC 2231, which readers of forms
// do not agree about.
func extendedName(disposition string) bool {
	for param := range strings.SplitSeq(strings.ToLower(disposition), ";") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(param), "name"); ok && strings.HasPrefix(rest, "*") {
			return true
		}
	}
	return false
}
