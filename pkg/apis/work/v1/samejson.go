package v1

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
)

// SameJSON reports whether two texts are the same JSON value. Numbers are compared as text.
func SameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, ok := decode(a)
	y, also := decode(b)
	return ok && also && reflect.DeepEqual(x, y)
}

func decode(text []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return value, err == io.EOF
}
