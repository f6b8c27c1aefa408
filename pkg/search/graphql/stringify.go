package graphql

import (
	"bytes"
	"slices"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// Names of the fields of an item that are not properties.
const (
	uidKey     = "_uid"
	hubKey     = "_hubClusterResource"
	relatedKey = "_relatedUids"
)

const separator = "; "

// appendItem appends an item in the form that public clients expect: an object of texts, with maps
// as "k=v; k=v" and lists as "a; b". properties are the properties of the item in JSON.
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

// appendTyped appends an item with typed properties.
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

// own reports whether only the server sets a key. Reported values of such keys are ignored.
func own(key []byte) bool {
	switch string(key[1 : len(key)-1]) {
	case uidKey, hubKey, relatedKey, query.Cluster:
		return true
	}
	return false
}

// appendOwn appends the fields of an item that are not properties, and ends the object.
func appendOwn(dst []byte, start int, item *search.Item) []byte {
	if len(dst) > start && dst[len(dst)-1] != ',' {
		dst = append(dst, ',')
	}
	dst = append(dst, `"_uid":`...)
	dst = serving.AppendString(dst, item.UID)
	dst = append(dst, `,"cluster":`...)
	dst = serving.AppendString(dst, item.Cluster)
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
		dst = serving.AppendString(dst, text)
	}
	return append(dst, ']')
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
	// Elements are sorted, because public clients compare the texts of lists.
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

// appendInner appends a value inside a string.
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

// walkObject calls each with every quoted key and value of a compact, valid object.
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
