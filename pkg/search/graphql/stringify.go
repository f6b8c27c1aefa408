package graphql

import (
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// appendItem appends an item in the form that upstream clients expect.
func appendItem(dst []byte, item *search.Item) []byte {
	start := len(dst) + 1
	dst = search.AppendTexts(dst, item.Object)
	return appendOwn(dst[:len(dst)-1], start, item)
}

// appendTyped appends an item with typed properties.
func appendTyped(dst []byte, item *search.Item) []byte {
	dst = append(dst, '{')
	start := len(dst)
	search.WalkObject(item.JSON(), func(key, value []byte) {
		if query.Reserved(string(key[1 : len(key)-1])) {
			return
		}
		dst = append(dst, key...)
		dst = append(dst, ':')
		dst = append(dst, value...)
		dst = append(dst, ',')
	})
	return appendOwn(dst, start, item)
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
