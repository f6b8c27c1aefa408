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

// catalog contains the clusters and classes that this process has read. Each read first updates the
// catalog.
type catalog struct {
	mu sync.Mutex
	// version is the version of the state in the catalog.
	version int64
	// epoch changes with each new class or cluster.
	epoch      uint64
	hubClasses int64
	// resources is the number of resources of all classes.
	resources int64
	clusters  map[int32]*cluster
	// named contains the clusters by name.
	named  map[string]*cluster
	shapes map[string]*shape

	// known guards classes. Writers hold both locks, and readers hold one of them. When the catalog
	// is reset, it gets a new map, and reads in progress keep the previous map.
	known   sync.RWMutex
	classes map[int64]*class
}

type cluster struct {
	id      int32
	name    string
	classes []*class
}

// class is immutable except for n, which the lock of the catalog guards.
type class struct {
	id      int64
	cluster *cluster
	shape   *shape
	// is is the class in the form that a Scope decides about.
	is visibility.Class
	n  int64
}

// shape contains the properties that the classes of many clusters share.
type shape struct {
	properties query.Properties
	kind       string
}

// view is the state of one read: a snapshot of the database, and the catalog in the state of the
// snapshot.
type view struct {
	engine  *Engine
	catalog *catalog
	// tx is a connection in a read-only transaction.
	tx      *pgxpool.Conn
	version int64
	classes map[int64]*class
	// resources is the number of all resources.
	resources int64
}

// read calls look while the catalog is locked, and then use with only the snapshot.
func (d *database) read(ctx context.Context, look func(*view) error, use func(*view) error) error {
	connection, err := d.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer connection.Release()
	// If the rollback fails, the connection is closed.
	defer func() { _ = d.engine.rollBack(ctx, connection) }()
	v := &view{engine: d.engine, catalog: &d.catalog, tx: connection}
	err = func() error {
		// Snapshots are taken one after the other, so that the catalog is never newer than a
		// snapshot.
		d.catalog.mu.Lock()
		defer d.catalog.mu.Unlock()
		// If the caller disconnects, the refresh continues. Otherwise, other callers would have to
		// read the whole catalog again.
		refreshing, cancel := d.refreshing(ctx)
		defer cancel()
		if err := d.catalog.refresh(refreshing, connection); err != nil {
			return fmt.Errorf("reading classes: %w", err)
		}
		v.version, v.classes, v.resources = d.catalog.version, d.catalog.classes, d.catalog.resources
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

// rollBackTimeout bounds the end of a read-only transaction.
const rollBackTimeout = 5 * time.Second

// refresh starts a transaction and reads the changes since the last refresh, in one round trip.
func (c *catalog) refresh(ctx context.Context, connection *pgxpool.Conn) error {
	if c.clusters == nil {
		c.forget()
	}
	version, expired, err := c.readSince(ctx, connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	if err == nil && expired {
		c.forget()
		version, _, err = c.readSince(ctx, connection, "SELECT 1")
	}
	if err != nil {
		// The catalog may contain only some of the changes.
		c.forget()
		return err
	}
	c.version = version
	return nil
}

// forget resets the catalog, so that the next refresh reads the complete state.
func (c *catalog) forget() {
	c.clusters, c.named, c.shapes, c.classes = map[int32]*cluster{}, map[string]*cluster{}, map[string]*shape{}, map[int64]*class{}
	c.version, c.resources = 0, 0
	c.epoch++
}

// readSince reads the changes since the version of the catalog. If that version is no longer known,
// expired is true, and the catalog is invalid.
func (c *catalog) readSince(ctx context.Context, connection *pgxpool.Conn, first string) (version int64, expired bool, err error) {
	batch := &pgx.Batch{}
	batch.Queue(first)
	batch.Queue("SELECT version, trimmed, hub_classes, (SELECT count(*) FROM " + table("clusters") + ") FROM " + table("meta"))
	batch.Queue("SELECT id, name FROM "+table("clusters")+" WHERE changed > $1", c.version)
	batch.Queue("SELECT cluster, id, hub, shape, n FROM "+table("classes")+" WHERE changed > $1", c.version)
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
		// Clusters were removed.
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
			one := &cluster{id: id, name: unescape(name)}
			c.clusters[id], c.named[one.name] = one, one
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
			// The cluster was removed, so the class is empty.
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

// class returns the class with the given ID, or nil if it is unknown.
func (v *view) class(id int64) *class {
	v.catalog.known.RLock()
	defer v.catalog.known.RUnlock()
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

// byName returns the clusters in the order of their names, which is the order of items.
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
	err = e.primary.read(ctx, func(*view) error {
		for _, one := range e.primary.catalog.classes {
			if one.is.Hub && one.n > 0 {
				classes[one.is] = struct{}{}
			}
		}
		version = uint64(e.primary.catalog.hubClasses)
		return nil
	}, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("classes of the hub: %w", err)
	}
	sorted := make([]visibility.Class, 0, len(classes))
	for class := range classes {
		sorted = append(sorted, class)
	}
	slices.SortFunc(sorted, func(a, b visibility.Class) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Group, b.Group),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace))
	})
	return sorted, version, nil
}
