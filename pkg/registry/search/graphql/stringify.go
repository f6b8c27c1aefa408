package graphql

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Names of what is added to the properties of an item.
const (
	uidKey     = "_uid"
	hubKey     = "_hubClusterResource"
	relatedKey = "_relatedUids"
)

const separator = "; "

// appendItem appends an item, with its properties in JSON, as public clients expect it: an object of
// texts, maps as "k=v; k=v" and lists as "a; b".
func appendItem(dst, properties []byte, item *search.Item) []byte {
	dst = append(dst, '{')
	start := len(dst)
	walkObject(properties, func(key, value []byte) {
		if own(key) || value[0] == 'n' {
			return
		}
		dst = append(dst, key...)
		dst = append(dst, ':')
		switch value[0] {
		case '"':
			dst = append(dst, value...)
		case '{':
			dst = appendMap(dst, value)
		case '[':
			dst = appendList(dst, value)
		default:
			dst = append(dst, '"')
			dst = append(dst, value...)
			dst = append(dst, '"')
		}
		dst = append(dst, ',')
	})
	return appendOwn(dst, start, item)
}

// appendTyped appends an item with its properties as they are.
func appendTyped(dst []byte, item *search.Item) []byte {
	dst = append(dst, '{')
	start := len(dst)
	walkObject(item.JSON(), func(key, value []byte) {
		if own(key) {
			return
		}
		dst = append(dst, key...)
		dst = append(dst, ':')
		dst = append(dst, value...)
		dst = append(dst, ',')
	})
	return appendOwn(dst, start, item)
}

// own tells whether a key is one that only we write, whatever was reported.
func own(key []byte) bool {
	switch string(key[1 : len(key)-1]) {
	case uidKey, hubKey, relatedKey, query.Cluster:
		return true
	}
	return false
}

// appendOwn appends what items have beside their properties, and ends the object.
func appendOwn(dst []byte, start int, item *search.Item) []byte {
	if len(dst) > start && dst[len(dst)-1] != ',' {
		dst = append(dst, ',')
	}
	dst = append(dst, `"_uid":`...)
	dst = appendText(dst, item.UID)
	dst = append(dst, `,"cluster":`...)
	dst = appendText(dst, item.Cluster)
	if item.Hub {
		dst = append(dst, `,"_hubClusterResource":"true"`...)
	}
	if len(item.RelatedTo) > 0 {
		dst = append(dst, `,"_relatedUids":`...)
		dst = appendTexts(dst, item.RelatedTo)
	}
	return append(dst, '}')
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, text := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(dst, text)
	}
	return append(dst, ']')
}

// appendText appends a text as JSON; what is not UTF-8 in it is replaced.
func appendText(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}

func appendMap(dst, object []byte) []byte {
	dst = append(dst, '"')
	first := true
	walkObject(object, func(key, value []byte) {
		if !first {
			dst = append(dst, separator...)
		}
		first = false
		dst = append(dst, key[1:len(key)-1]...)
		dst = append(dst, '=')
		dst = appendInner(dst, value)
	})
	return append(dst, '"')
}

func appendList(dst, list []byte) []byte {
	// The elements are in order for public clients, who compare the texts of lists.
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
			dst = append(dst, separator...)
		}
		dst = appendInner(dst, element)
	}
	return append(dst, '"')
}

// appendInner appends a value inside of a text.
func appendInner(dst, value []byte) []byte {
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

// walkObject calls each with every key (quoted) and value of a compact, valid object.
func walkObject(object []byte, each func(key, value []byte)) {
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

// valueEnd is where the value that begins at i ends; always after i.
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

// stringEnd is where the string that begins at i ends.
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
