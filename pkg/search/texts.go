package search

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// textSeparator separates the elements of maps and lists in texts.
const textSeparator = "; "

// AppendTexts appends an object of texts, as the upstream search service returns it: a map becomes
// "k=v; k=v", and a list "a; b" with sorted elements. Properties that only the server sets are
// omitted.
func AppendTexts(dst []byte, object Object) []byte {
	encoded, is := object.(JSON)
	if !is {
		encoded = object.AppendJSON(nil)
	}
	dst = append(dst, '{')
	WalkObject(encoded, func(key, value []byte) {
		if value[0] == 'n' || query.Reserved(string(key[1:len(key)-1])) {
			return
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, key...)
		dst = append(dst, ':')
		switch value[0] {
		case '"':
			dst = append(dst, value...)
		case '{':
			dst = appendMapText(dst, value)
		case '[':
			dst = appendListText(dst, value)
		default:
			dst = append(dst, '"')
			dst = append(dst, value...)
			dst = append(dst, '"')
		}
	})
	return append(dst, '}')
}

func appendMapText(dst, object []byte) []byte {
	dst = append(dst, '"')
	first := true
	WalkObject(object, func(key, value []byte) {
		if !first {
			dst = append(dst, textSeparator...)
		}
		first = false
		dst = append(dst, key[1:len(key)-1]...)
		dst = append(dst, '=')
		dst = appendInnerText(dst, value)
	})
	return append(dst, '"')
}

// appendListText appends the text of a list in JSON, which must be compact and valid.
func appendListText(dst, list []byte) []byte {
	// Elements are sorted, because upstream clients compare the texts of lists.
	var few [8][]byte
	elements := few[:0]
	for i := 1; i < len(list) && list[i] != ']'; {
		end := valueEnd(list, i)
		elements = append(elements, list[i:end])
		i = end
		if i < len(list) && list[i] == ',' {
			i++
		}
	}
	slices.SortFunc(elements, bytes.Compare)
	dst = append(dst, '"')
	for i, element := range elements {
		if i > 0 {
			dst = append(dst, textSeparator...)
		}
		dst = appendInnerText(dst, element)
	}
	return append(dst, '"')
}

// appendInnerText appends the text of a value in JSON without its quotes.
func appendInnerText(dst, value []byte) []byte {
	switch value[0] {
	case '"':
		return append(dst, value[1:len(value)-1]...)
	case '{', '[':
		for _, c := range value {
			if c == '"' || c == '\\' {
				dst = append(dst, '\\')
			}
			dst = append(dst, c)
		}
		return dst
	}
	return append(dst, value...)
}

// LeafText returns the text of a value in JSON: of a string without quotes and escapes, and of other
// values as it is.
func LeafText(value []byte) string {
	if value[0] != '"' {
		return string(value)
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		// The value is valid, so this error does not occur.
		return string(value[1 : len(value)-1])
	}
	return string(text)
}

// WalkObject calls each with every quoted key and value of a compact, valid object.
func WalkObject(object []byte, each func(key, value []byte)) {
	for i := 1; i < len(object) && object[i] == '"'; {
		keyEnd := stringEnd(object, i)
		if keyEnd+1 >= len(object) {
			return
		}
		end := valueEnd(object, keyEnd+1)
		each(object[i:keyEnd], object[keyEnd+1:end])
		i = end + 1
	}
}

// valueEnd returns the end of the value that begins at i. The end is always after i.
func valueEnd(data []byte, i int) int {
	switch data[i] {
	case '"':
		return stringEnd(data, i)
	case '{', '[':
		depth := 0
		for i < len(data) {
			switch data[i] {
			case '"':
				i = stringEnd(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
		return i
	}
	i++
	for i < len(data) && data[i] != ',' && data[i] != '}' && data[i] != ']' {
		i++
	}
	return i
}

// stringEnd returns the end of the string that begins at i.
func stringEnd(data []byte, i int) int {
	for at := i + 1; ; {
		quote := bytes.IndexByte(data[at:], '"')
		if quote < 0 {
			return len(data)
		}
		at += quote
		escapes := 0
		for at-1-escapes > i && data[at-1-escapes] == '\\' {
			escapes++
		}
		at++
		if escapes%2 == 0 {
			return at
		}
	}
}
