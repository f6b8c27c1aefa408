package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

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
func (e *Engine) Internal(ctx context.Context, cluster string, visit func(*search.Resource) error) (_ uint64, err error) {
	defer observe("internal", time.Now(), &err)
	ctx, cancel := context.WithTimeout(ctx, e.options.StatementTimeout)
	defer cancel()
	var version int64
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, e.primary.pool, options, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT version FROM "+table("meta")).Scan(&version); err != nil {
			return err
		}
		var id int32
		err := tx.QueryRow(ctx, "SELECT id FROM "+table("clusters")+" WHERE name = $1", escape(cluster)).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT uid, doc, internal FROM "+table("resources")+" WHERE cluster = $1 AND internal IS NOT NULL", id)
		if err != nil {
			return err
		}
		var uid, doc, internal string
		_, err = pgx.ForEachRow(rows, []any{&uid, &doc, &internal}, func() error {
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
		return err
	})
	return uint64(version), err
}
