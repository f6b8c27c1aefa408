package ingest

import (
	"fmt"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// refusals collects the reasons why parts of a report are rejected.
type refusals struct {
	errors []inventory.SyncError
	max    int
	// more is the number of rejections that are not in errors.
	more int
}

func (r *refusals) add(uid, message string) {
	if len(r.errors) >= r.max {
		r.more++
		return
	}
	if len(uid) > uidBytes {
		uid = strings.ToValidUTF8(uid[:uidBytes], "")
	}
	r.errors = append(r.errors, inventory.SyncError{ResourceUID: strings.Clone(uid), Message: message})
}

func (r *refusals) list() []inventory.SyncError {
	if r.more == 0 {
		return r.errors
	}
	return append(r.errors, inventory.SyncError{Message: fmt.Sprintf("%d more errors", r.more)})
}
