package quota

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// BodyValues bounds the values in the body of a write, PayloadValues the values in the manifests
	// of a ManifestWork. Field management processes them before an object is validated, at more
	// than a hundred times the cost of parsing them.
	BodyValues, PayloadValues = 20_000, 120_000
	// maxNesting bounds the nesting of values.
	maxNesting = 512
	// maxDigits bounds the length of a number.
	maxDigits = 400
)

// payload is the name of a field that field management treats as a single value.
const payload = "manifests"

// LimitBodies rejects writes whose body has too many values with the status code 413. next reads at
// most maxBytes of a body. limited reports whether the body of a request is a stored object. change
// returns the body that next reads instead.
func LimitBodies(next http.Handler, maxBytes int64, limited func(*request.RequestInfo) bool, change func(*request.RequestInfo, []byte) []byte, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, found := request.RequestInfoFrom(r.Context())
		if r.Body == nil || !found || !info.IsResourceRequest || !limited(info) {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes+1))
		if err == nil {
			err = checkBody(body)
		}
		if err != nil {
			if apierrors.ReasonForError(err) == "" {
				err = apierrors.NewBadRequest("cannot read the request body: " + err.Error())
			}
			bodyRejections.Inc()
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
			return
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(change(info, body)), r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

// checkBody returns an API error if a body in JSON or YAML has too many values. Each line of
// YAML counts as a value.
func checkBody(body []byte) error {
	var s scanner
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] != '{' && trimmed[0] != '[' {
		s.values, s.yaml = bytes.Count(body, []byte("\n")), true
	}
	s.scan(body)
	if s.number != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("number %.64s is out of range", s.number))
	}
	for _, part := range []struct {
		name          string
		values, limit int
	}{{"the object", s.values, BodyValues}, {"its " + payload, s.payload, PayloadValues}} {
		if part.values > part.limit {
			return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s must contain at most %d values", part.name, part.limit))
		}
	}
	if s.deepest > maxNesting {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object must be nested at most %d levels deep", maxNesting))
	}
	return nil
}

// scanner counts the values of JSON, and of the flow style of YAML. It neither recurses nor
// allocates memory.
type scanner struct {
	values, payload int
	depth, deepest  int
	// yaml is true if the text is YAML, in which the scanner does not recognize numbers.
	yaml bool
	// number is the first number that is out of range. Field management would panic on it.
	number string
	// within is the depth of the current list of manifests; 0 outside of it.
	within int
}

func (s *scanner) scan(body []byte) {
	var key string
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '"':
			end := closingQuote(body, i+1)
			if end-i-1 == len(payload) {
				key = string(body[i+1 : end])
			} else {
				key = ""
			}
			i = end
		case '{', '[':
			s.count()
			s.depth++
			s.deepest = max(s.deepest, s.depth)
			if c == '[' && s.within == 0 && strings.EqualFold(key, payload) {
				s.within = s.depth
			}
			key = ""
		case '}', ']':
			if s.depth == s.within {
				s.within = 0
			}
			s.depth--
			key = ""
		case ',':
			s.count()
			key = ""
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i + 1
			for end < len(body) && strings.IndexByte("+-.0123456789eE", body[end]) >= 0 {
				end++
			}
			if literal := string(body[i:end]); !s.yaml && s.number == "" && !inRange(literal) {
				s.number = literal
			}
			i = end - 1
		}
	}
}

// inRange reports whether a number fits into a float64 and is not too long.
func inRange(literal string) bool {
	if len(literal) > maxDigits {
		return false
	}
	_, err := strconv.ParseFloat(literal, 64)
	return !errors.Is(err, strconv.ErrRange)
}

func (s *scanner) count() {
	if s.within > 0 {
		s.payload++
	} else {
		s.values++
	}
}

// closingQuote returns the index of the quote that ends a string, or the end of the text.
func closingQuote(body []byte, i int) int {
	for ; i < len(body) && body[i] != '"'; i++ {
		if body[i] == '\\' {
			i++
		}
	}
	return min(i, len(body))
}
