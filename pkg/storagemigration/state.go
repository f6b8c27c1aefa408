package storagemigration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Resource is a resource in etcd.
type Resource struct {
	// Name identifies the resource in the record: its name in storage and its group, separated by a dot.
	Name string
	// Prefix begins the key of each object, without the prefix of the server. It begins and ends with a slash.
	Prefix string
	// Servers are the endpoints of the etcd that stores the resource, if it is another than that of Config.Transport.
	Servers []string
	// Stored is the version in which this server stores objects. Readable are the versions that it reads.
	Stored   string
	Readable []string
	// New returns an empty object.
	New func() runtime.Object
	// Open opens a store without cache that writes the version Stored, and returns a function that
	// closes it.
	Open func() (storage.Interface, func(), error)
}

// reads reports whether this server reads a version.
func (r *Resource) reads(version string) bool {
	return version == r.Stored || slices.Contains(r.Readable, version)
}

// replica is what a running server reports to the other replicas.
type replica struct {
	// Stored and Readable are the versions that the replica writes and reads, by resource.
	Stored   map[string]string   `json:"stored"`
	Readable map[string][]string `json:"readable"`
}

// record contains the versions in which the objects of a resource may be stored, by resource. The
// versions of a missing resource are unknown.
type record struct {
	Versions map[string][]string `json:"versions"`
}

// IsRecord reports whether a key of etcd is that of the record of a server, whatever its prefix.
func IsRecord(key string) bool { return strings.HasSuffix(key, stateKey+recordKey) }

// ParseRecord returns the API versions in which a record says that objects may be stored, by resource.
func ParseRecord(value []byte) (map[string][]string, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("decoding the versions of stored objects: %w", err)
	}
	return r.Versions, nil
}

// state is what etcd contains about versions, at one revision.
type state struct {
	revision int64
	record   record
	// recordRevision is the revision of the last change of the record, or 0 without a record.
	recordRevision int64
	replicas       map[string]replica
	// replicaRevision is the revision at which the last replica was added.
	replicaRevision int64
}

// parse reads the state from the answer to a request for all keys below prefix.
func parse(prefix string, answer *clientv3.GetResponse) (*state, error) {
	s := &state{revision: answer.Header.Revision, replicas: map[string]replica{}}
	for _, kv := range answer.Kvs {
		key := strings.TrimPrefix(string(kv.Key), prefix)
		var err error
		if name, ok := strings.CutPrefix(key, replicasKey); ok {
			var r replica
			err = json.Unmarshal(kv.Value, &r)
			s.replicas[name] = r
			s.replicaRevision = max(s.replicaRevision, kv.ModRevision)
		} else if key == recordKey {
			err = json.Unmarshal(kv.Value, &s.record)
			s.recordRevision = kv.ModRevision
		}
		if err != nil {
			return nil, fmt.Errorf("decoding %s of etcd: %w", kv.Key, err)
		}
	}
	return s, nil
}

// IncompatibleError is the error of a server that cannot share etcd with its data or with another
// replica. It must not serve.
type IncompatibleError struct{ reason string }

func (e *IncompatibleError) Error() string { return e.reason }

// compatible returns an IncompatibleError if this server cannot read what etcd contains or what
// another replica writes, or if a replica cannot read what this server writes.
func (s *state) compatible(resources []Resource, self string) error {
	for _, r := range resources {
		for _, version := range s.record.Versions[r.Name] {
			if !r.reads(version) {
				return &IncompatibleError{fmt.Sprintf("etcd contains %s in version %s, which this release cannot read; "+
					"start a release that reads it and stores another version, and wait until it has migrated them", r.Name, version)}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.replicas)) {
			other := s.replicas[name]
			stored, known := other.Stored[r.Name]
			if name == self || !known {
				continue
			}
			if !r.reads(stored) {
				return &IncompatibleError{fmt.Sprintf("the running replica %s stores %s in version %s, which this release cannot read; "+
					"update the replicas by one release at a time", name, r.Name, stored)}
			}
			if r.Stored != stored && !slices.Contains(other.Readable[r.Name], r.Stored) {
				return &IncompatibleError{fmt.Sprintf("the running replica %s cannot read %s in version %s, which this release stores; "+
					"update the replicas by one release at a time", name, r.Name, r.Stored)}
			}
		}
	}
	return nil
}

// unrecorded returns the record with the versions that this server stores, or false if it already
// contains them. It adds no resource, because the versions of its objects are unknown.
func (s *state) unrecorded(resources []Resource) (record, bool) {
	out, changed := record{Versions: maps.Clone(s.record.Versions)}, false
	for _, r := range resources {
		if versions, known := out.Versions[r.Name]; known && !slices.Contains(versions, r.Stored) {
			out.Versions[r.Name] = append(slices.Clone(versions), r.Stored)
			changed = true
		}
	}
	return out, changed
}

// pending returns the resources whose objects may be stored in a version other than Stored. waits
// contains those that another replica stores in another version, with the name of the replica.
func (s *state) pending(resources []Resource, self string) (ready []Resource, waits map[string]string) {
	waits = map[string]string{}
	for _, r := range resources {
		if slices.Equal(s.record.Versions[r.Name], []string{r.Stored}) {
			continue
		}
		for name, other := range s.replicas {
			if stored, known := other.Stored[r.Name]; name != self && known && stored != r.Stored {
				waits[r.Name] = name
			}
		}
		if _, waiting := waits[r.Name]; !waiting {
			ready = append(ready, r)
		}
	}
	return ready, waits
}

// migrated returns the record after all objects of resources have been rewritten.
func (s *state) migrated(resources []Resource) record {
	out := record{Versions: maps.Clone(s.record.Versions)}
	if out.Versions == nil {
		out.Versions = map[string][]string{}
	}
	for _, r := range resources {
		out.Versions[r.Name] = []string{r.Stored}
	}
	return out
}
