package enginetest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// apiError is an error answer in vLLM's shape: the code is the HTTP status.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

const (
	engineDied = "EngineCore encountered an issue. See stack trace (above) for the root cause."
	engineBusy = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)

// errorFor is an error with the type that vLLM gives that status.
func errorFor(status int, message string) *apiError {
	kind := http.StatusText(status)
	switch status {
	case http.StatusBadRequest:
		kind = "BadRequestError"
	case http.StatusNotFound:
		kind = "NotFoundError"
	case http.StatusUnprocessableEntity:
		kind = "UnprocessableEntityError"
	case http.StatusInternalServerError:
		kind = "InternalServerError"
	case http.StatusNotImplemented:
		kind = "NotImplementedError"
	}
	return &apiError{Message: message, Type: kind, Code: status}
}

func (e *apiError) about(param string) *apiError {
	e.Param = &param
	return e
}

// invalid is what vLLM says of a body that fails validation at loc.
func invalid(kind, loc, message, detail string) *apiError {
	text := fmt.Sprintf("1 validation error:\n  {'type': '%s', 'loc': '%s', 'msg': '%s', %s}", kind, loc, message, detail)
	return (&apiError{Message: text, Type: "Bad Request", Code: http.StatusBadRequest}).about(loc)
}

// decodeError puts an error of the JSON decoder into vLLM's words.
func decodeError(err error) *apiError {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return invalid("json_invalid", "body."+strconv.FormatInt(syntax.ByteOffset, 10), "JSON decode error",
			"'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}")
	}
	loc := "body"
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		loc += strings.ReplaceAll(string(semantic.JSONPointer), "/", ".")
	}
	return invalid("type_error", loc, "Input should be of a valid type", "'input': '<value>'")
}

func writeError(w http.ResponseWriter, status int, e *apiError) {
	writeJSON(w, status, struct {
		Error *apiError `json:"error"`
	}{e})
}

// writeDetail is the flat error of the web framework below vLLM's API.
func writeDetail(w http.ResponseWriter, status int) {
	writeJSON(w, status, struct {
		Detail string `json:"detail"`
	}{http.StatusText(status)})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // only types of this package come here
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
