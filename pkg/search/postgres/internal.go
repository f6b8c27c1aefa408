package postgres

import (
	"context"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// storedInternal returns the internal properties of a resource as they are stored. r may be nil.
func (r *resource) storedInternal() *string {
	if r == nil || r.internal == "" {
		return nil
	}
	return &r.internal
}

// Internal implements search.Engine.
func (e *Engine) Internal(ctx context.Context, cluster string, visit func(*search.Resource) error) (version uint64, err error) {
	defer observe("internal", time.Now(), &err)
	var id int32
	err = e.primary.read(ctx, func(v *view) error {
		if of := v.catalog.named[cluster]; of != nil {
			id = of.id
		}
		version = uint64(v.version)
		return nil
	}, func(v *view) error {
		var uid, doc, internal string
		statement := "SELECT uid, doc, internal FROM " + table("resources") + " WHERE cluster = $1 AND internal IS NOT NULL"
		return v.rows(ctx, statement, []any{id}, []any{&uid, &doc, &internal}, func() error {
			resource := search.Resource{UID: unescape(uid)}
			var err error
			if resource.Properties, err = query.DecodeProperties([]byte(doc)); err != nil {
				return err
			}
			if resource.Internal, err = query.DecodeProperties([]byte(internal)); err != nil {
				return err
			}
			return visit(&resource)
		})
	})
	return version, err
}
