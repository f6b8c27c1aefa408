package etcd

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestLog checks which messages of etcd are logged.
func TestLog(t *testing.T) {
	stopping := &atomic.Bool{}
	core, logged := observer.New(zapcore.WarnLevel)
	log := zap.New(logCore{core, stopping}).With(zap.String("member", "a"))
	write := func() {
		log.Info("an ordinary message")
		log.Warn("Running http and grpc server on single port. This is not recommended for production.")
		log.Error("failed to update storage version", zap.Error(errors.New("cannot detect storage schema version: missing term information")))
		log.Error("failed to update storage version", zap.Error(errors.New("disk full")))
		log.Error("setting up serving from embedded etcd failed.", zap.Error(errors.New("http: Server closed")))
	}
	messages := func() []string {
		var out []string
		for _, entry := range logged.TakeAll() {
			out = append(out, entry.Message)
		}
		return out
	}
	write()
	if got, want := messages(), []string{"failed to update storage version", "setting up serving from embedded etcd failed."}; !slices.Equal(got, want) {
		t.Errorf("messages = %q, want %q", got, want)
	}
	stopping.Store(true)
	write()
	if got, want := messages(), []string{"failed to update storage version"}; !slices.Equal(got, want) {
		t.Errorf("messages during a stop = %q, want %q", got, want)
	}
}
