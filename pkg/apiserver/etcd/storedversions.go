package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// recordKey is the key of the record below the prefix of a server. The keys of objects begin with a group, which contains
// a dot.
const recordKey = "/storage-versions/record"

// StoredVersions are the API versions of the objects of a resource in etcd.
type StoredVersions struct {
	// Resource is the name of the resource in storage and its group, separated by a dot.
	Resource string
	// Stored is the version in which this server stores objects. Readable are the versions that it reads.
	Stored   string
	Readable []string
}

// versionRecord contains the versions in which the objects of a resource may be stored, by resource. Each server adds
// those that it stores before it serves.
type versionRecord struct {
	Versions map[string][]string `json:"versions"`
}

// RecordVersions adds the versions that this server stores to the record in etcd. It returns an UnusableError if etcd
// may contain objects that this server cannot read.
func (c *Cluster) RecordVersions(ctx context.Context, resources []StoredVersions) error {
	key := c.Prefix + recordKey
	for {
		answer, err := c.Client.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("reading the versions of stored objects: %w", err)
		}
		var record versionRecord
		var revision int64
		for _, kv := range answer.Kvs {
			revision = kv.ModRevision
			if err := json.Unmarshal(kv.Value, &record); err != nil {
				return fmt.Errorf("decoding %s of etcd: %w", key, err)
			}
		}
		changed, err := record.add(resources)
		if err != nil || !changed {
			return err
		}
		content, err := json.Marshal(record)
		if err != nil {
			return err
		}
		written, err := c.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(content))).Commit()
		if err != nil {
			return fmt.Errorf("recording the versions of stored objects: %w", err)
		}
		if written.Succeeded {
			return nil
		}
	}
}

// add adds the versions that a server stores. It reports whether the record changes.
func (r *versionRecord) add(resources []StoredVersions) (changed bool, err error) {
	if r.Versions == nil {
		r.Versions = map[string][]string{}
	}
	for _, resource := range resources {
		versions := r.Versions[resource.Resource]
		for _, version := range versions {
			if !slices.Contains(resource.Readable, version) {
				return false, UnusableError(fmt.Sprintf("etcd contains %s in version %s, which this release cannot read; "+
					"start a release that reads it and stores another version, and rewrite the objects", resource.Resource, version))
			}
		}
		if !slices.Contains(versions, resource.Stored) {
			r.Versions[resource.Resource] = append(versions, resource.Stored)
			changed = true
		}
	}
	return changed, nil
}
