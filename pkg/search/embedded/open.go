package embedded

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// lostVersions exceeds the number of versions that a crash of the machine can lose.
const lostVersions = 1 << 32

// Open calls Begin and Load.
func Open(dir string, options Options) (*Engine, error) {
	data, err := Begin(dir, options)
	if err != nil {
		return nil, err
	}
	return data.Load(context.Background())
}

// Data are the data of an engine that are locked for this process and not loaded yet.
type Data struct {
	store  *store
	engine *Engine
}

// Begin locks the data in a directory and creates the directory if it does not exist. It returns
// search.ErrInUse if another process has the data open. The caller must call Load.
func Begin(dir string, options Options) (*Data, error) {
	registerMetrics()
	e := &Engine{
		logger: options.Logger, scopes: newScopes(), keywords: lru.New(keywordsLimit),
		queue: make(chan *job, maxQueue), closed: make(chan struct{}),
		maxCost: options.MaxCost, caller: options.Caller, turns: newTurns(), answers: search.NewPool(search.PoolBytes),
	}
	if e.maxCost <= 0 {
		e.maxCost = search.DefaultCost
	}
	if e.logger.GetSink() == nil {
		e.logger = klog.Background()
	}
	e.log = changeLog{limit: options.ChangeLog, published: make(chan struct{})}
	if e.log.limit <= 0 {
		e.log.limit = defaultChangeLog
	}
	// Tokens are valid only in this process, like the numbers of rows.
	var key [32]byte
	_, _ = rand.Read(key[:]) // It never returns an error.
	var err error
	if e.tokens, err = search.NewTokens(key[:], rowBytes); err != nil {
		return nil, err
	}
	boot := options.boot
	if boot == "" {
		boot = bootID()
	}
	s, err := openStore(dir, boot, e.logger)
	if err != nil {
		return nil, err
	}
	return &Data{store: s, engine: e}, nil
}

// Load loads the data and returns the engine. If ctx ends first, or after any other error, the data
// are unlocked again.
//
// A file that is damaged or has another format is moved aside. Its cluster then has no resources
// and is Incomplete until its next full report. After a crash of the machine, every cluster is
// Incomplete until its next full report.
func (d *Data) Load(ctx context.Context) (*Engine, error) {
	e := d.engine
	if err := e.open(ctx, d.store); err != nil {
		return nil, err
	}
	e.running.Add(2)
	go e.write()
	go e.writeCheckpoints()
	return e, nil
}

// open loads the data.
func (e *Engine) open(ctx context.Context, s *store) error {
	start := time.Now()
	t, indexed, err := loadAll(ctx, s)
	if err == nil {
		err = e.distrust(s, t)
	}
	if err != nil {
		s.abandon()
		return err
	}
	if t.state.visible > 0 {
		e.logger.Info("Loaded the search data", "resources", t.state.visible, "clusters", len(t.state.clusters), "indexed", indexed, "duration", time.Since(start))
	}
	current := t.state
	e.store, e.writer, e.indexed = s, t.writer, indexed
	e.current.Store(&current)
	e.log.reset(&current)
	current.measure()
	return nil
}

// distrust marks every cluster as Incomplete if the machine crashed since the data were closed. It
// also raises the version above all versions that may have been lost.
func (e *Engine) distrust(s *store, t *transaction) error {
	if s.trusted {
		return nil
	}
	t.state.version = max(t.state.version+lostVersions, uint64(time.Now().UnixMicro()))
	for id := range t.state.clusters {
		t.editCluster(uint32(id)).incomplete = true
		t.journal.stored.cluster(uint32(id))
	}
	if len(t.state.clusters) > 0 {
		e.logger.Info("A crash of the machine may have lost reports; every cluster must report all its resources again", "clusters", len(t.state.clusters))
	}
	if err := s.write(t); err != nil {
		return fmt.Errorf("write the search data: %w", err)
	}
	t.journal.stored = storedChanges{}
	return nil
}

// loadAll reads the checkpoint and the files of all clusters, until ctx ends. It returns the number
// of resources that were not in the checkpoint.
func loadAll(ctx context.Context, s *store) (*transaction, int, error) {
	from, err := s.readCheckpoint()
	if err != nil {
		return nil, 0, fmt.Errorf("checkpoint of the search data: %w", err)
	}
	from.state.version = max(from.state.version, s.Version)
	t := newWriter(&from.state, 0).begin(&from.state)
	t.journal.recording = false
	indexed, err := t.load(ctx, s, from.files)
	if err != nil {
		return nil, 0, fmt.Errorf("load the search data: %w", err)
	}
	if err := t.prepare(ctx.Err); err != nil {
		return nil, 0, err
	}
	t.finish()
	t.state.moved, t.journal.stored = nil, storedChanges{}
	t.state.firstMoved, t.state.changes = 0, 0
	return t, indexed, nil
}
