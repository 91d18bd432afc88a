package proxy

import (
	"net/http"
	"strconv"
	"strings"
)

// shape is the form of errors, by the API that was called.
type shape uint8

const (
	shapeOpenAI    shape = iota
	shapeResponses       // bodies as OpenAI's others, error events of its own
	shapeAnthropic
)

// shapeOf is the form of errors under a path.
func shapeOf(path string) shape {
	switch {
	case under(path, "/v1/messages"):
		return shapeAnthropic
	case under(path, "/v1/responses"):
		return shapeResponses
	}
	return shapeOpenAI
}

func under(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// appendError appends the body of an error. It is encoded as JSON, so that no
// text can end it or begin another.
func (s shape) appendError(dst []byte, e *apiError, requestID string) []byte {
	if s == shapeAnthropic {
		return appendAnthropic(dst, anthropicType(e.status, e.code), e.code, e.message, requestID)
	}
	dst = append(dst, `{"error":`...)
	dst = appendErrorObject(dst, errorType(e.status), e.code, e.message, e.param)
	return append(dst, '}')
}

func appendErrorObject(dst []byte, kind, code, message, param string) []byte {
	dst = append(dst, `{"message":`...)
	dst = appendJSONString(dst, message)
	dst = append(dst, `,"type":`...)
	dst = appendJSONString(dst, kind)
	dst = append(dst, `,"param":`...)
	if param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendJSONString(dst, param)
	}
	dst = append(dst, `,"code":`...)
	dst = appendJSONString(dst, code)
	return append(dst, '}')
}

// appendAnthropic has one member more than Anthropic's own errors, code: what
// went wrong is more than a type can say.
func appendAnthropic(dst []byte, kind, code, message, requestID string) []byte {
	dst = append(dst, `{"type":"error","error":{"type":`...)
	dst = appendJSONString(dst, kind)
	dst = append(dst, `,"message":`...)
	dst = appendJSONString(dst, message)
	dst = append(dst, `,"code":`...)
	dst = appendJSONString(dst, code)
	dst = append(dst, `},"request_id":`...)
	dst = appendJSONString(dst, requestID)
	return append(dst, '}')
}

// anthropicType is the error type that Anthropic's API has for a status.
func anthropicType(status int, code string) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	switch {
	case status < 500:
		return "invalid_request_error"
	case code == "overloaded", code == "no_healthy_engine":
		return "overloaded_error"
	}
	return "api_error"
}

// appendErrorEvent appends the one event that tells of an error in a stream.
// Each form is the one at which that API's clients raise: Anthropic's need the
// event's name, OpenAI's the error member, in Responses beside the members
// that its own error events have. sequence is that of the last event.
func (s shape) appendErrorEvent(dst []byte, code, message, requestID string, sequence int64) []byte {
	switch s {
	case shapeAnthropic:
		dst = append(dst, "event: error\ndata: "...)
		dst = appendAnthropic(dst, anthropicType(eventStatus(code), code), code, message, requestID)
	case shapeResponses:
		dst = append(dst, "event: error\n"+`data: {"type":"error","code":`...)
		dst = appendJSONString(dst, code)
		dst = append(dst, `,"message":`...)
		dst = appendJSONString(dst, message)
		dst = append(dst, `,"param":null,"sequence_number":`...)
		dst = strconv.AppendInt(dst, sequence+1, 10)
		dst = append(dst, `,"error":`...)
		dst = appendErrorObject(dst, errorType(eventStatus(code)), code, message, "")
		dst = append(dst, '}')
	default:
		dst = append(dst, `data: {"error":`...)
		dst = appendErrorObject(dst, errorType(eventStatus(code)), code, message, "")
		dst = append(dst, '}')
	}
	return append(dst, "\n\n"...)
}

// eventStatus is the status that an error in a stream would have had before it.
func eventStatus(code string) int {
	switch code {
	case "invalid_request", "request_crashes_engine":
		return http.StatusBadRequest
	case "model_not_found", "previous_response_not_found":
		return http.StatusNotFound
	case "overloaded", "rate_limit_exceeded":
		return http.StatusTooManyRequests
	case "engine_timeout", "stream_stalled":
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
