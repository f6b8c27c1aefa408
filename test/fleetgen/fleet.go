package fleetgen

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// Hub is the name of the hub as a cluster of the fleet: the cluster with index 0.
	Hub = "local-cluster"
	// DefaultSeed is the seed of Options without one.
	DefaultSeed = 20240607

	hubNamespaces     = 500
	managedNamespaces = 60
	safeLetters       = "bcdfghjklmnpqrstvwxz2456789"
)

// Epoch is the time of every report that has no other. No resource is younger than its report.
var Epoch = time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC)

// Options are the options of a fleet.
type Options struct {
	// Clusters is the number of clusters including the hub, and PerCluster the number of resources of
	// each. Clusters of fewer than 700 resources have fewer namespaces. Below 50, PerCluster is not exact.
	Clusters, PerCluster int
	// Seed selects one of the fleets of the same size; 0 means DefaultSeed.
	Seed uint64
	// HubNamespaces is the number of namespaces of the hub; 0 means 500.
	HubNamespaces int
	// Name is the name of the cluster; [ClusterName] of the index if empty.
	Name string
	// Now is the time of the report; [Epoch] if zero.
	Now time.Time
}

// ClusterName returns the name of the cluster with an index.
func ClusterName(index int) string {
	if index == 0 {
		return Hub
	}
	return fmt.Sprintf("cluster-%03d", index)
}

// Cluster returns the full report of one cluster. The cluster with index 0 is the hub. The report depends only on
// the arguments, so clusters may be generated concurrently and in any order.
func Cluster(o Options, index int) *search.Report {
	if o.Seed == 0 {
		o.Seed = DefaultSeed
	}
	o.Name = cmp.Or(o.Name, ClusterName(index))
	if o.Now.IsZero() {
		o.Now = Epoch
	}
	c := &cluster{
		options: o, index: index, name: o.Name, hub: index == 0, size: o.PerCluster,
		r:          rand.New(rand.NewPCG(o.Seed, uint64(index))),
		configMaps: map[string][]string{}, secrets: map[string][]string{}, pods: map[workload][]string{},
		report: &search.Report{
			Cluster: o.Name, Hub: index == 0, Full: true, Time: o.Now,
			Put: make([]search.Resource, 0, o.PerCluster), AddEdges: make([]search.Edge, 0, o.PerCluster*3/2),
		},
	}
	c.build()
	return c.report
}

// workload identifies the Pods of a Service.
type workload struct{ namespace, app string }

// object is a resource to which other resources refer.
type object struct {
	uid, name, namespace, app string
	labels                    []string
	hash, owner               string
}

type cluster struct {
	options Options
	index   int
	name    string
	hub     bool
	size    int
	r       *rand.Rand
	leaves  leaves
	report  *search.Report

	namespaces []string
	// sums contains, for each namespace, the sum of the weights up to this namespace.
	sums                []float64
	nodes               []object
	configMaps, secrets map[string][]string
	pods                map[workload][]string
}

func (c *cluster) build() {
	c.nameNamespaces()
	counts := c.count()
	c.addNamespaces()
	c.addNodes()
	c.addOthers("ConfigMap", counts["ConfigMap"])
	c.addOthers("Secret", counts["Secret"])
	deployments := c.addDeployments(counts["Deployment"])
	c.addPods(counts["Pod"], c.addReplicaSets(counts["ReplicaSet"], deployments))
	for _, k := range kinds {
		switch k.name {
		case "ConfigMap", "Secret", "Deployment", "ReplicaSet", "Pod":
		default:
			c.addOthers(k.name, counts[k.name])
		}
	}
}

// nameNamespaces sets the namespaces: on the hub, those of the managed clusters; on every cluster,
// those of systems and applications. The namespaces of applications have the most resources.
func (c *cluster) nameNamespaces() {
	want := managedNamespaces
	if c.hub {
		if want = hubNamespaces; c.options.HubNamespaces > 0 {
			want = c.options.HubNamespaces
		}
	}
	if c.options.HubNamespaces == 0 || !c.hub {
		want = max(1, min(want, c.size/10))
	}
	var names []string
	if c.hub {
		for i := range c.options.Clusters {
			names = append(names, ClusterName(i))
		}
	}
	for i := 0; len(names) < want; i++ {
		names = append(names, freeNamespace(c.index, i))
	}
	c.namespaces = names[:want]
	sum := 0.0
	weights := map[string]float64{}
	for _, name := range systemNamespaces {
		weights[name] = 1.5
	}
	for _, name := range appNamespaces {
		weights[name] = 3
	}
	for _, name := range c.namespaces {
		weight, ok := weights[name]
		if !ok {
			weight = 1
		}
		sum += weight
		c.sums = append(c.sums, sum)
	}
}

// freeNamespace returns the name of the i-th namespace of a cluster that does not belong to a managed cluster.
func freeNamespace(cluster, i int) string {
	if i < len(systemNamespaces) {
		return systemNamespaces[i]
	}
	if i -= len(systemNamespaces); i < len(appNamespaces) {
		return appNamespaces[i]
	}
	i -= len(appNamespaces)
	if cluster == 0 {
		return fmt.Sprintf("app-%03d", i)
	}
	return fmt.Sprintf("tenant-%03d", (cluster*7+len(systemNamespaces)+len(appNamespaces)+i)%400)
}

// count returns the number of resources of each kind. The number of ConfigMaps is adjusted to
// reach the total. If there are too few ConfigMaps, the numbers of Secrets and other kinds are
// adjusted as well.
func (c *cluster) count() map[string]int {
	counts, rest := map[string]int{}, c.size-len(c.namespaces)-c.nodeCount()
	for _, k := range kinds {
		counts[k.name] = max(1, c.size*k.perMille/1000)
		rest -= counts[k.name]
	}
	for _, name := range []string{"ConfigMap", "Secret", "ServiceAccount", "EndpointSlice", "Pod"} {
		adjusted := max(1, counts[name]+rest)
		rest -= adjusted - counts[name]
		counts[name] = adjusted
	}
	return counts
}

func (c *cluster) nodeCount() int {
	if c.hub {
		return min(9, max(1, c.size/20))
	}
	return min(14, max(1, c.size/20))
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func (c *cluster) namespace() string {
	at, _ := slices.BinarySearch(c.sums, c.r.Float64()*c.sums[len(c.sums)-1])
	return c.namespaces[at]
}

func (c *cluster) uuid() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], c.r.Uint64())
	binary.BigEndian.PutUint64(raw[8:], c.r.Uint64())
	return uuid.UUID(raw).String()
}

func (c *cluster) suffix(n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = safeLetters[c.r.IntN(len(safeLetters))]
	}
	return string(text)
}

// timestamp returns a time in the last 400 days, mostly in the recent past.
func (c *cluster) timestamp() string {
	f := c.r.Float64()
	return c.options.Now.Add(-time.Duration(f*f*f*400*86400) * time.Second).Format(time.RFC3339)
}

func (c *cluster) status() string {
	n := c.r.IntN(1000)
	for _, s := range statuses {
		if n -= s.perMille; n < 0 {
			return s.name
		}
	}
	return statuses[0].name
}

func (c *cluster) version() string {
	return strconv.Itoa(1+c.r.IntN(5)) + "." + strconv.Itoa(c.r.IntN(20)) + "." + strconv.Itoa(c.r.IntN(12))
}

// labels returns alternating keys and values; the version is the last one.
func (c *cluster) labels(app, namespace string) []string {
	if namespace == "" {
		namespace = "cluster"
	}
	return []string{
		"app.kubernetes.io/name", app, "app.kubernetes.io/instance", app + "-" + namespace,
		"app.kubernetes.io/managed-by", pick(c.r, installers), "env", pick(c.r, environments),
		"team", pick(c.r, teams), "app.kubernetes.io/version", c.version(),
	}
}

func (c *cluster) annotations() []string {
	return []string{
		"deployment.kubernetes.io/revision", strconv.Itoa(1 + c.r.IntN(39)),
		"example.com/cost-center", pick(c.r, costCenters), "example.com/owner", pick(c.r, teams),
	}
}

func (c *cluster) row(k kind, name, namespace string, labels []string) *row {
	r := &row{leaves: &c.leaves, properties: make(query.Properties, 0, 24)}
	r.set(query.Kind, k.name, query.KindPlural, k.plural, query.APIVersion, k.version, query.Name, name, query.Created, c.timestamp())
	if k.group != "" {
		r.set(query.APIGroup, k.group)
	}
	if namespace != "" {
		r.set(query.Namespace, namespace)
	}
	if labels != nil {
		r.pairs(query.Label, labels...)
	}
	if c.hub {
		r.set("_hubClusterResource", true)
	}
	return r
}

// add adds the resource to the report and returns its UID.
func (c *cluster) add(r *row) string {
	uid := c.name + "/" + c.uuid()
	properties := r.sorted()
	// The copy has no spare capacity: a fleet has millions of these.
	c.report.Put = append(c.report.Put, search.Resource{UID: uid, Properties: append(make(query.Properties, 0, len(properties)), properties...)})
	return uid
}

func (c *cluster) edge(source, sourceKind, dest, destKind, relation string) {
	c.report.AddEdges = append(c.report.AddEdges, search.Edge{
		SourceUID: source, SourceKind: sourceKind, DestUID: dest, DestKind: destKind, Type: relation,
	})
}

func (c *cluster) address(first int) string {
	return strings.Join([]string{strconv.Itoa(first), strconv.Itoa(c.r.IntN(256)), strconv.Itoa(c.r.IntN(256))}, ".")
}
