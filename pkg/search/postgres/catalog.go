package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// catalog is what this process knows of clusters and classes. It is brought up to date at
// the beginning of each read.
type catalog struct {
	mu sync.Mutex
	// version that it is up to date with.
	version int64
	// epoch changes whenever there are classes or clusters that were not there.
	epoch      uint64
	hubClasses int64
	// resources are how many all classes have.
	resources int64
	clusters  map[int32]*cluster
	shapes    map[string]*shape

	// known guards what the map of classes has: it is written with both locks, and read with either. The map
	// itself is another one after everything was forgotten, while reads under way keep theirs.
	known   sync.RWMutex
	classes map[int64]*class
}

type cluster struct {
	id      int32
	name    string
	classes []*class
}

// class never changes but for n, which the lock of the catalog guards.
type class struct {
	id      int64
	cluster *cluster
	shape   *shape
	// is what a Scope decides about.
	is visibility.Class
	n  int64
}

// shape is what classes of many clusters have in common.
type shape struct {
	properties query.Properties
	kind       string
}

// view is what one read works with: a snapshot of the database, and what the
// catalog says as of it.
type view struct {
	engine *Engine
	// tx is a connection with a transaction that only reads.
	tx      *pgxpool.Conn
	version int64
	classes map[int64]*class
	// resources are how many there are.
	resources int64
}

// read calls look with the catalog locked, as of a snapshot, and then use with the
// snapshot alone.
func (e *Engine) read(ctx context.Context, look func(*view) error, use func(*view) error) error {
	connection, err := e.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer connection.Release()
	// If the transaction cannot be ended, the connection is.
	defer func() { _ = e.rollBack(ctx, connection) }()
	v := &view{engine: e, tx: connection}
	err = func() error {
		// Snapshots are taken one after the other, so that the catalog never knows more than the read's.
		e.catalog.mu.Lock()
		defer e.catalog.mu.Unlock()
		// A caller that goes away must not leave the others a catalog to read anew.
		refreshing, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.StatementTimeout)
		defer cancel()
		if err := e.catalog.refresh(refreshing, e, connection); err != nil {
			return fmt.Errorf("reading classes: %w", err)
		}
		v.version, v.classes, v.resources = e.catalog.version, e.catalog.classes, e.catalog.resources
		return look(v)
	}()
	if err != nil || use == nil {
		return err
	}
	return use(v)
}

func (e *Engine) rollBack(ctx context.Context, connection *pgxpool.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackTimeout)
	defer cancel()
	_, err := connection.Exec(ctx, "ROLLBACK")
	return err
}

// rollBackTimeout bounds the end of a transaction that has read.
const rollBackTimeout = 5 * time.Second

// refresh begins a transaction and reads what has changed since, all in one trip.
func (c *catalog) refresh(ctx context.Context, e *Engine, connection *pgxpool.Conn) error {
	if c.clusters == nil {
		c.forget()
	}
	version, expired, err := c.readSince(ctx, e, connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	if err == nil && expired {
		c.forget()
		version, _, err = c.readSince(ctx, e, connection, "SELECT 1")
	}
	if err != nil {
		// Half of the news is worth nothing.
		c.forget()
		return err
	}
	c.version = version
	return nil
}

// forget makes the next refresh read everything.
func (c *catalog) forget() {
	c.clusters, c.shapes, c.classes = map[int32]*cluster{}, map[string]*shape{}, map[int64]*class{}
	c.version, c.resources = 0, 0
	c.epoch++
}

// readSince reads what has changed since the version of the catalog. It is expired if that is not
// known any more; nothing counts then.
func (c *catalog) readSince(ctx context.Context, e *Engine, connection *pgxpool.Conn, first string) (version int64, expired bool, err error) {
	batch := &pgx.Batch{}
	batch.Queue(first)
	batch.Queue("SELECT version, trimmed, hub_classes, (SELECT count(*) FROM " + e.table("clusters") + ") FROM " + e.table("meta"))
	batch.Queue("SELECT id, name FROM "+e.table("clusters")+" WHERE changed > $1", c.version)
	batch.Queue("SELECT cluster, id, hub, shape, n FROM "+e.table("classes")+" WHERE changed > $1", c.version)
	results := connection.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return 0, false, err
	}
	var trimmed int64
	var clusters int
	if err := results.QueryRow().Scan(&version, &trimmed, &c.hubClasses, &clusters); err != nil {
		return 0, false, err
	}
	if c.version < trimmed && c.version > 0 || c.version > version {
		return 0, true, nil
	}
	known := len(c.clusters) + len(c.classes)
	if err := c.readClusters(results); err != nil {
		return 0, false, err
	}
	if len(c.clusters) != clusters {
		// Some were removed.
		return 0, true, nil
	}
	if err := c.readClasses(results); err != nil {
		return 0, false, err
	}
	if len(c.clusters)+len(c.classes) != known {
		c.epoch++
	}
	return version, false, nil
}

func (c *catalog) readClusters(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var id int32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		if c.clusters[id] == nil {
			c.clusters[id] = &cluster{id: id, name: unescape(name)}
		}
		return nil
	})
	return err
}

func (c *catalog) readClasses(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var clusterID int32
	var id, n int64
	var hub bool
	var text string
	_, err = pgx.ForEachRow(rows, []any{&clusterID, &id, &hub, &text, &n}, func() error {
		if known := c.classes[id]; known != nil {
			c.resources += n - known.n
			known.n = n
			return nil
		}
		of := c.clusters[clusterID]
		if of == nil {
			// The cluster was removed, and this class is empty.
			return nil
		}
		s, err := c.shape(text)
		if err != nil {
			return err
		}
		one := &class{id: id, cluster: of, shape: s, is: search.ClassOf(of.name, hub, s.properties), n: n}
		c.known.Lock()
		c.classes[id] = one
		c.known.Unlock()
		of.classes = append(of.classes, one)
		c.resources += n
		return nil
	})
	return err
}

// class is that of an ID; nil for one that is not known.
func (v *view) class(id int64) *class {
	v.engine.catalog.known.RLock()
	defer v.engine.catalog.known.RUnlock()
	return v.classes[id]
}

func (c *catalog) shape(text string) (*shape, error) {
	if known := c.shapes[text]; known != nil {
		return known, nil
	}
	properties, err := query.DecodeProperties([]byte(text))
	if err != nil {
		return nil, err
	}
	one := &shape{properties: properties, kind: search.Text(properties, query.Kind)}
	c.shapes[text] = one
	return one, nil
}

// byName are the clusters in the order of their names, which is the order of items.
func (c *catalog) byName() []*cluster {
	clusters := make([]*cluster, 0, len(c.clusters))
	for _, one := range c.clusters {
		clusters = append(clusters, one)
	}
	slices.SortFunc(clusters, func(a, b *cluster) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	})
	return clusters
}

// HubClasses implements search.Engine.
func (e *Engine) HubClasses(ctx context.Context) (_ []visibility.Class, _ uint64, err error) {
	defer observe("classes", time.Now(), &err)
	classes := map[visibility.Class]struct{}{}
	var version uint64
	err = e.read(ctx, func(*view) error {
		for _, one := range e.catalog.classes {
			if one.is.Hub && one.n > 0 {
				classes[one.is] = struct{}{}
			}
		}
		version = uint64(e.catalog.hubClasses)
		return nil
	}, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("classes of the hub: %w", err)
	}
	sorted := make([]visibility.Class, 0, len(classes))
	for class := range classes {
		sorted = append(sorted, class)
	}
	slices.SortFunc(sorted, compareClasses)
	return sorted, version, nil
}
