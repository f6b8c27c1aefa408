package view

import (
	"hash/fnv"
	"strconv"
)

// versionOf returns the resource version of a state of a view: a digest, which is the same on each replica. Permissions of
// callers change what they see, and have no version in etcd.
func versionOf(objects []Object) string {
	digest := fnv.New64a()
	var text []byte
	for _, object := range objects {
		text = append(append(text[:0], object.GetName()...), 0)
		text = append(append(text, object.GetUID()...), 0)
		text = append(append(text, object.GetResourceVersion()...), 0)
		_, _ = digest.Write(text)
	}
	// The version 0 would stand for any version, and some clients parse versions as signed numbers.
	return strconv.FormatUint(digest.Sum64()>>1|1, 10)
}
