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

// Codes of PostgreSQL for temporary errors.
const (
	// classConnection is the prefix of codes for failed connections. classResources is the prefix
	// of codes for insufficient memory, disk space or connections.
	classConnection = "08"
	classResources  = "53"
	queryCanceled   = "57014"
)

// passing contains the codes of a server that stops, has crashed or starts, and of a server that
// has become a standby.
var passing = []string{"57P01", "57P02", "57P03", "25006"}

// classified wraps an error in search.ErrUnavailable if the database is unavailable, and in
// context.DeadlineExceeded if the operation took too long.
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

// away reports whether an error means that the database is unreachable or out of order.
func away(err error) bool {
	// A timeout of a connection attempt is independent of the request.
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
