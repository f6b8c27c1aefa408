package etcd

import (
	"fmt"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Messages of an ordinary start and stop that read like failures.
const (
	// onePort is for servers with a port. The embedded etcd has a unix socket.
	onePort = "Running http and grpc server on single port"
	// noTerm is the error of the check of the storage version until the first write.
	noTerm = "missing term information"
)

// closedListeners are the messages about the listeners that a stop closes.
var closedListeners = []string{
	"setting up serving from embedded etcd failed", "stopping insecure grpc server due to error", "stopped insecure grpc server due to error",
}

// logCore writes the log of etcd without the messages of an ordinary start and stop.
type logCore struct {
	zapcore.Core
	stopping *atomic.Bool
}

// newLog returns the logger of an etcd. It logs warnings and errors to the standard error. stopping is true when the etcd
// stops.
func newLog(stopping *atomic.Bool) (func(*embed.Config) error, error) {
	log, err := logutil.CreateDefaultZapLogger(zapcore.WarnLevel)
	if err != nil {
		return nil, fmt.Errorf("creating the logger of etcd: %w", err)
	}
	return embed.NewZapLoggerBuilder(log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return logCore{core, stopping} }))), nil
}

// With implements zapcore.Core.
func (l logCore) With(fields []zapcore.Field) zapcore.Core {
	return logCore{l.Core.With(fields), l.stopping}
}

// Check implements zapcore.Core. The wrapped core also limits the rate of equal messages.
func (l logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Core.Check(entry, nil) == nil {
		return checked
	}
	return checked.AddCore(entry, l)
}

// Write implements zapcore.Core.
func (l logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if strings.HasPrefix(entry.Message, onePort) {
		return nil
	}
	for _, message := range closedListeners {
		if l.stopping.Load() && strings.HasPrefix(entry.Message, message) {
			return nil
		}
	}
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && strings.Contains(err.Error(), noTerm) {
			return nil
		}
	}
	return l.Core.Write(entry, fields)
}
