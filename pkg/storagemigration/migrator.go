// Package storagemigration rewrites objects that etcd contains in a version in which the server no
// longer stores them, so that a later release can drop that version.
//
// A key of etcd records the versions in which the objects of each resource may be stored. Each server
// adds the versions that it writes before it serves, and reports to the other replicas which versions
// it writes and reads. The leader rewrites all objects of a resource once all replicas write the same
// version, and then removes the other versions from the record. A server refuses to start if it cannot
// read a version of the record.
package storagemigration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// stateKey is the prefix of the keys of this package. The keys of objects begin with a group, which
	// contains a dot.
	stateKey    = "/storage-versions/"
	recordKey   = "record"
	replicasKey = "replicas/"

	// leaseSeconds is the time after which a replica that was killed no longer delays a migration.
	leaseSeconds = 60
	enterTimeout = 10 * time.Second
	leaveTimeout = 2 * time.Second

	// recheck is the time after which the leader reads the record again. A replica of another release
	// may have changed it. waitPeriod is shorter, while another replica delays the migration.
	recheck    = time.Minute
	waitPeriod = 5 * time.Second
	stepPeriod = 10 * time.Second
	lastRetry  = 5 * time.Minute

	memberBackoff = time.Second
	memberConnect = 3 * time.Second

	// checkRate and writeRate are objects per second, and byteRate bytes per second. They keep a
	// migration far below the capacity of etcd: it has weeks.
	checkRate = 1000
	writeRate = 200
	byteRate  = 2 << 20
	keysLimit = 1000
)

// Config is the configuration of a Migrator.
type Config struct {
	// Transport and Prefix are those of the stores of the server.
	Transport storagebackend.TransportConfig
	Prefix    string
	Resources []Resource
	// Size returns the size of an object in bytes.
	Size func(runtime.Object) int64
	// Replica is the unique name of this server. It is empty if no other server can use the etcd.
	Replica string
}

// Migrator migrates stored objects.
type Migrator struct {
	config Config
	client *clientv3.Client
	// others are the clients of other etcd clusters, by their servers.
	others map[string]*clientv3.Client
	// root begins the keys of objects, and prefix those of this package.
	root, prefix string
	loop         reconcile.Loop
	// entered is true while the other replicas know this server.
	entered atomic.Bool
	lease   clientv3.LeaseID

	checks, writes, bytes *rate.Limiter
	// step limits one call of the loop, which would report a longer one as stuck.
	step time.Duration
	// pass is the unfinished pass of the leader, or nil. Only the loop uses it.
	pass *pass
}

// New returns a Migrator. The caller must call Close.
func New(config Config) (*Migrator, error) {
	client, err := newClient(config.Transport)
	if err != nil {
		return nil, err
	}
	root := path.Join("/", config.Prefix)
	m := &Migrator{
		config: config, client: client, root: root, prefix: root + stateKey,
		checks: rate.NewLimiter(checkRate, 1), writes: rate.NewLimiter(writeRate, 1), bytes: rate.NewLimiter(byteRate, byteRate),
		step: stepPeriod, others: map[string]*clientv3.Client{},
	}
	for _, r := range config.Resources {
		key := serversKey(r.Servers)
		if key == "" || m.others[key] != nil {
			continue
		}
		transport := config.Transport
		transport.ServerList = r.Servers
		if m.others[key], err = newClient(transport); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	m.loop = reconcile.Loop{
		Name: "storage-migration", Reconcile: m.reconcile, Initial: []cache.ObjectName{cache.NewObjectName("", "storage")},
		Workers: 1, UrgentWorkers: 1, LastRetry: lastRetry,
	}
	return m, nil
}

// Close closes the connections to etcd.
func (m *Migrator) Close() error {
	errs := []error{m.client.Close()}
	for _, client := range m.others {
		if client != nil {
			errs = append(errs, client.Close())
		}
	}
	return errors.Join(errs...)
}

// Clients returns a client of each etcd in which the server stores objects, until Close.
func (m *Migrator) Clients() []*clientv3.Client {
	return append([]*clientv3.Client{m.client}, slices.Collect(maps.Values(m.others))...)
}

// Clusters returns the URLs of the members of each etcd in which the server stores objects.
func (m *Migrator) Clusters() [][]string {
	var out [][]string
	for _, client := range m.Clients() {
		out = append(out, client.Endpoints())
	}
	return out
}

// Members returns a new client of each member of the etcd clusters, by its URL. It connects soon after a member has
// started. If direct is true, it does not use the dialer of the stores. The caller must close the clients.
func (m *Migrator) Members(direct bool) (map[string]*clientv3.Client, error) {
	out := map[string]*clientv3.Client{}
	for _, cluster := range m.Clients() {
		for _, member := range cluster.Endpoints() {
			transport := m.config.Transport
			transport.ServerList = []string{member}
			if direct {
				transport.EgressLookup = nil
			}
			client, err := newClient(transport, grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: memberBackoff, MaxDelay: memberBackoff, Multiplier: 1}, MinConnectTimeout: memberConnect,
			}))
			if err != nil {
				return nil, err
			}
			out[member] = client
		}
	}
	return out, nil
}

func serversKey(servers []string) string { return strings.Join(servers, ";") }

// clientOf returns the client of the etcd that stores a resource.
func (m *Migrator) clientOf(r *Resource) *clientv3.Client {
	if len(r.Servers) == 0 {
		return m.client
	}
	return m.others[serversKey(r.Servers)]
}

// Client returns the client of etcd, which Close closes.
func (m *Migrator) Client() *clientv3.Client { return m.client }

// Prefix returns the prefix of the keys of the server in etcd.
func (m *Migrator) Prefix() string { return m.root }

// Resource returns a resource by its name in storage, or nil.
func (m *Migrator) Resource(name string) *Resource {
	for i := range m.config.Resources {
		if m.config.Resources[i].Name == name {
			return &m.config.Resources[i]
		}
	}
	return nil
}

// Enter makes this server known to the other replicas, and records the versions that it stores. Call
// it before the server serves. It returns an IncompatibleError if the server must not serve.
func (m *Migrator) Enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	// Enter reports this server before it reads the record. If a leader removes a version of this server
	// from the record at the same time, then either this server sees that, or the leader's write fails.
	if m.config.Replica != "" {
		if err := m.report(ctx); err != nil {
			return fmt.Errorf("reporting this replica in etcd: %w", err)
		}
	}
	for {
		s, err := m.read(ctx)
		if err != nil {
			return err
		}
		if err := s.compatible(m.config.Resources, m.config.Replica); err != nil {
			m.leave(ctx)
			return err
		}
		update, changed := s.unrecorded(m.config.Resources)
		if !changed {
			break
		}
		written, err := m.write(ctx, s, update)
		if err != nil {
			return err
		}
		if written {
			break
		}
	}
	m.entered.Store(true)
	return nil
}

// Keep keeps this server known to the other replicas until ctx ends, which must not be before the
// server has stopped writing. It calls Enter again if the first call failed, or if etcd was unreachable
// for too long. It returns an IncompatibleError if the server must stop.
func (m *Migrator) Keep(ctx context.Context) error {
	defer m.leave(ctx)
	var fatal *IncompatibleError
	err := wait.PollUntilContextCancel(ctx, waitPeriod, true, func(ctx context.Context) (bool, error) {
		if !m.entered.Load() {
			if err := m.Enter(ctx); errors.As(err, &fatal) {
				return false, err
			} else if err != nil {
				if ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Failed to record the versions of stored objects")
				}
				return false, nil
			}
		}
		if m.config.Replica == "" {
			return true, nil
		}
		alive, err := m.client.KeepAlive(ctx, m.lease)
		if err == nil {
			for range alive { //nolint:revive // the channel is closed when the lease has expired
			}
		}
		m.entered.Store(false)
		return false, nil
	})
	if errors.As(err, &fatal) {
		return fatal
	}
	return nil
}

// leave removes this server from the replicas.
func (m *Migrator) leave(ctx context.Context) {
	if m.lease == clientv3.NoLease {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if _, err := m.client.Revoke(ctx, m.lease); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to remove this replica from etcd; its lease expires", "err", err)
	}
}

func (m *Migrator) report(ctx context.Context) error {
	r := replica{Stored: map[string]string{}, Readable: map[string][]string{}}
	for _, resource := range m.config.Resources {
		r.Stored[resource.Name], r.Readable[resource.Name] = resource.Stored, resource.Readable
	}
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	lease, err := m.client.Grant(ctx, leaseSeconds)
	if err != nil {
		return err
	}
	m.lease = lease.ID
	_, err = m.client.Put(ctx, m.prefix+replicasKey+m.config.Replica, string(content), clientv3.WithLease(lease.ID))
	return err
}

func (m *Migrator) read(ctx context.Context) (*state, error) {
	answer, err := m.client.Get(ctx, m.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading the versions of stored objects: %w", err)
	}
	return parse(m.prefix, answer)
}

// write replaces the record, unless the record has changed or a replica was added since s was read.
// It reports whether it has written.
func (m *Migrator) write(ctx context.Context, s *state, update record) (bool, error) {
	content, err := json.Marshal(update)
	if err != nil {
		return false, err
	}
	answer, err := m.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(m.prefix+recordKey), "=", s.recordRevision),
		clientv3.Compare(clientv3.ModRevision(m.prefix+replicasKey).WithPrefix(), "<", s.revision+1),
	).Then(clientv3.OpPut(m.prefix+recordKey, string(content))).Commit()
	if err != nil {
		return false, fmt.Errorf("recording the versions of stored objects: %w", err)
	}
	return answer.Succeeded, nil
}

// Run migrates objects until ctx ends. Only the leader may run it.
func (m *Migrator) Run(ctx context.Context) {
	defer pendingResources.Reset()
	defer m.endPass()
	m.loop.Run(ctx)
}

// pass rewrites the objects of resources once.
type pass struct {
	// began is the state before the first object was read.
	began *state
	// left are the resources that are not finished, and done those without failures.
	left, done []Resource
	// store is the open store of left[0], or nil. next is the first key that was not checked.
	store     storage.Interface
	close     func()
	next      string
	rewritten int
	// failed is the error of the first object of left[0] that was not rewritten. errs are those of
	// finished resources.
	failed error
	errs   []error
}

func (m *Migrator) endPass() {
	if m.pass != nil && m.pass.close != nil {
		m.pass.close()
	}
	m.pass = nil
}

// reconcile continues the current pass, or begins one if an object may be stored in another version.
func (m *Migrator) reconcile(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	if !m.entered.Load() {
		return waitPeriod, nil
	}
	s, err := m.read(ctx)
	if err != nil {
		return 0, err
	}
	ready, waits := s.pending(m.config.Resources, m.config.Replica)
	for _, r := range m.config.Resources {
		_, waiting := waits[r.Name]
		pending := waiting || slices.ContainsFunc(ready, func(p Resource) bool { return p.Name == r.Name })
		value := 0.0
		if pending {
			value = 1
		}
		pendingResources.WithLabelValues(r.Name).Set(value)
	}
	for name, other := range waits {
		klog.FromContext(ctx).V(1).Info("A replica stores another version; its objects are migrated after it has stopped", "resource", name, "replica", other)
	}
	if len(ready) == 0 {
		m.endPass()
		if len(waits) > 0 {
			return waitPeriod, nil
		}
		return recheck, nil
	}
	// After a change, a replica may have stored another version behind the position of the pass.
	if p := m.pass; p != nil && (p.began.recordRevision != s.recordRevision || s.replicaRevision > p.began.revision) {
		m.endPass()
	}
	if m.pass == nil {
		m.pass = &pass{began: s, left: ready}
	}
	finished, err := m.advance(ctx)
	if err != nil {
		return 0, err
	}
	if !finished {
		return time.Millisecond, nil
	}
	p := m.pass
	m.endPass()
	if len(p.done) > 0 {
		written, err := m.write(ctx, p.began, p.began.migrated(p.done))
		if err != nil {
			return 0, err
		}
		if !written {
			return time.Millisecond, nil
		}
		klog.FromContext(ctx).Info("All objects are stored in the version of this release", "resources", len(p.done), "rewritten", p.rewritten)
	}
	if err := errors.Join(p.errs...); err != nil {
		return 0, err
	}
	return waitPeriod, nil
}

// advance continues the pass for a short time. It reports whether the pass is finished.
func (m *Migrator) advance(ctx context.Context) (bool, error) {
	p := m.pass
	for end := time.Now().Add(m.step); len(p.left) > 0; {
		r := &p.left[0]
		if p.store == nil {
			var err error
			if p.store, p.close, err = r.Open(); err != nil {
				return false, fmt.Errorf("opening the store of %s: %w", r.Name, err)
			}
			p.next = m.root + r.Prefix
		}
		keys, err := m.clientOf(r).Get(ctx, p.next, clientv3.WithRange(clientv3.GetPrefixRangeEnd(m.root+r.Prefix)),
			clientv3.WithKeysOnly(), clientv3.WithLimit(keysLimit))
		if err != nil {
			return false, fmt.Errorf("listing %s: %w", r.Name, err)
		}
		for _, kv := range keys.Kvs {
			if err := m.rewrite(ctx, p, r, strings.TrimPrefix(string(kv.Key), m.root)); ctx.Err() != nil {
				return false, ctx.Err()
			} else if err != nil && p.failed == nil {
				p.failed = fmt.Errorf("%s %s: %w", r.Name, strings.TrimPrefix(string(kv.Key), m.root+r.Prefix), err)
			}
			p.next = string(kv.Key) + "\x00"
			if time.Now().After(end) {
				return false, nil
			}
		}
		if keys.More {
			continue
		}
		if p.failed == nil {
			p.done = append(p.done, *r)
		} else {
			p.errs = append(p.errs, p.failed)
		}
		p.close()
		p.store, p.close, p.failed, p.left = nil, nil, nil, p.left[1:]
	}
	return true, nil
}

// rewrite stores an object again if its stored bytes differ from what this server writes. It bypasses
// admission, validation, quotas and the strategy of the resource: the content does not change, and an
// object that today's validation would refuse must be migrated too. The store compares revisions, so a
// concurrent write wins.
func (m *Migrator) rewrite(ctx context.Context, p *pass, r *Resource, key string) error {
	if err := m.checks.Wait(ctx); err != nil {
		return err
	}
	stored, before := r.New(), uint64(0)
	err := p.store.GuaranteedUpdate(ctx, key, stored, false, nil, func(current runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before = meta.ResourceVersion
		return current, nil, nil
	}, nil)
	if storage.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	after, err := p.store.Versioner().ObjectResourceVersion(stored)
	if err != nil || after == before {
		return err
	}
	p.rewritten++
	rewritten.WithLabelValues(r.Name).Inc()
	if err := m.writes.Wait(ctx); err != nil {
		return err
	}
	return m.bytes.WaitN(ctx, int(min(m.config.Size(stored), byteRate)))
}
