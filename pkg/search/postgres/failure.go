package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Codes of PostgreSQL for what passes without anybody asking otherwise.
const (
	// classConnection and classResources are what codes begin with: connections that break, and too
	// little memory, disk or connections.
	classConnection = "08"
	classResources  = "53"
	queryCanceled   = "57014"
)

// passing are codes of a server that stops, has crashed or starts, and of one that has become a standby.
var passing = []string{"57P01", "57P02", "57P03", "25006"}

// classified makes the error of an operation also search.ErrUnavailable if the database is away, and
// context.DeadlineExceeded if it took too long.
func classified(err error) error {
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, search.ErrUnavailable), errors.Is(err, context.Canceled):
		return err
	case away(err):
		return fmt.Errorf("%w: %w", search.ErrUnavailable, err)
	case errors.As(err, &refused) && refused.Code == queryCanceled:
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// away tells whether an error is that of a database that cannot be reached or does not work.
func away(err error) bool {
	// A connection that is not made in time is not the caller's asking for too much.
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return strings.HasPrefix(refused.Code, classConnection) || strings.HasPrefix(refused.Code, classResources) ||
			slices.Contains(passing, refused.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err)
}
