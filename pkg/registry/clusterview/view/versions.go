package view

import (
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// maxVersions is the number of states whose version is known.
const maxVersions = 4096

// versions assigns resource versions to states of a view. Permissions of callers change what they see, and have no
// version in etcd. A version is valid in one process.
type versions struct {
	seed maphash.Seed

	mu     sync.Mutex
	last   uint64
	states *lru.Cache // the version of each digest of a state
}

// init sets the first version. Versions of different processes hardly overlap, because the first is a time.
func (v *versions) init() {
	v.seed, v.states, v.last = maphash.MakeSeed(), lru.New(maxVersions), uint64(time.Now().UnixNano())
}

// of returns the version of a state. Equal states have the same version.
func (v *versions) of(objects []Object) string {
	var digest maphash.Hash
	digest.SetSeed(v.seed)
	for _, object := range objects {
		for _, text := range []string{object.GetName(), string(object.GetUID()), object.GetResourceVersion()} {
			_, _ = digest.WriteString(text)
			_ = digest.WriteByte(0)
		}
	}
	sum := digest.Sum64()
	v.mu.Lock()
	defer v.mu.Unlock()
	known, found := v.states.Get(sum)
	if !found {
		v.last++
		known = v.last
		v.states.Add(sum, known)
	}
	return strconv.FormatUint(known.(uint64), 10)
}
