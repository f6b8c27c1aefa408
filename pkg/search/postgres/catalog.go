package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

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

	// classes contains the classes by ID. When the catalog is reset, it gets a new map, and reads in progress keep the
	// previous map.
	classes *sync.Map
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
	classes *sync.Map
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
	c.clusters, c.named, c.shapes, c.classes = map[int32]*cluster{}, map[string]*cluster{}, map[string]*shape{}, &sync.Map{}
	c.version, c.resources = 0, 0
	c.epoch++
}

// readSince reads the changes since the version of the catalog. If that version is no longer known,
// expired is true, and the catalog is invalid.
func (c *catalog) readSince(ctx context.Context, connection *pgxpool.Conn, first string) (version int64, expired bool, err error) {
	p := pipeline{conn: connection}
	p.add("beginning", first)
	var trimmed int64
	var clusters int
	p.read("reading the version", []any{&version, &trimmed, &c.hubClasses, &clusters}, func() error { return nil },
		"SELECT version, trimmed, hub_classes, (SELECT count(*) FROM "+table("clusters")+") FROM "+table("meta"))
	c.readClusters(&p)
	c.readClasses(&p)
	if err := p.send(ctx); err != nil {
		return 0, false, err
	}
	// If the number of clusters differs, some were removed.
	expired = c.version < trimmed && c.version > 0 || c.version > version || len(c.clusters) != clusters
	return version, expired, nil
}

func (c *catalog) readClusters(p *pipeline) {
	var id int32
	var name string
	p.read("reading clusters", []any{&id, &name}, func() error {
		if c.clusters[id] == nil {
			one := &cluster{id: id, name: unescape(name)}
			c.clusters[id], c.named[one.name] = one, one
			c.epoch++
		}
		return nil
	}, "SELECT id, name FROM "+table("clusters")+" WHERE changed > $1", c.version)
}

func (c *catalog) readClasses(p *pipeline) {
	var clusterID int32
	var id, n int64
	var hub bool
	var text string
	p.read("reading classes", []any{&clusterID, &id, &hub, &text, &n}, func() error {
		if known, is := c.classes.Load(id); is {
			one := known.(*class)
			c.resources += n - one.n
			one.n = n
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
		c.classes.Store(id, one)
		of.classes = append(of.classes, one)
		c.resources += n
		c.epoch++
		return nil
	}, "SELECT cluster, id, hub, shape, n FROM "+table("classes")+" WHERE changed > $1", c.version)
}

// class returns the class with an ID, or errUnknownClass.
func (v *view) class(id int64) (*class, error) {
	if known, is := v.classes.Load(id); is {
		return known.(*class), nil
	}
	return nil, errUnknownClass
}

// ofClass returns a function that passes the class with the ID of a row to call.
func (v *view) ofClass(id *int64, call func(*class)) func() error {
	return func() error {
		of, err := v.class(*id)
		if err == nil {
			call(of)
		}
		return err
	}
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

// HubClasses implements search.Engine.
func (e *Engine) HubClasses(ctx context.Context) (_ []visibility.Class, _ uint64, err error) {
	defer observe("classes", time.Now(), &err)
	classes := map[visibility.Class]struct{}{}
	var version uint64
	err = e.primary.read(ctx, func(*view) error {
		for _, of := range e.primary.catalog.clusters {
			for _, one := range of.classes {
				if one.is.Hub && one.n > 0 {
					classes[one.is] = struct{}{}
				}
			}
		}
		version = uint64(e.primary.catalog.hubClasses)
		return nil
	}, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("classes of the hub: %w", err)
	}
	sorted := slices.SortedFunc(maps.Keys(classes), func(a, b visibility.Class) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Group, b.Group),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace))
	})
	return sorted, version, nil
}
