package ingest

const (
	// DefaultClusterResources and DefaultClusterBytes bound what is stored of one cluster: ten
	// times what a cluster of 500 nodes has.
	DefaultClusterResources = 500_000
	DefaultClusterBytes     = 1 << 30
)

// Limits bound what one report may hold. A field that is 0 means its default.
type Limits struct {
	// BodyBytes bounds the body, as sent and decompressed; 512 MiB by default.
	BodyBytes int64
	// ResourceBytes bounds the JSON of a resource's properties; 64 KiB by default.
	ResourceBytes int
	// Properties bounds the properties of a resource; 256 by default.
	Properties int
	// Resources bounds the resources that are new, changed or gone; 1,000,000 by default.
	Resources int
	// Values bounds the single values, such as elements of lists, of all resources: a value of
	// two bytes takes twenty times as much in memory. 8,000,000 by default, which is what 400,000 resources
	// have that have 20 each, as usual ones do.
	Values int
	// Edges bounds the edges that are new or gone; 5,000,000 by default.
	Edges int
	// Errors bounds the errors of each list in the answer; 1,000 by default. What
	// comes on top is told as a number.
	Errors int
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.BodyBytes, 512<<20)
	orDefault(&l.ResourceBytes, 64<<10)
	orDefault(&l.Properties, 256)
	orDefault(&l.Resources, 1_000_000)
	orDefault(&l.Values, 8_000_000)
	orDefault(&l.Edges, 5_000_000)
	orDefault(&l.Errors, 1_000)
	return l
}

func orDefault[N int | int64](n *N, value N) {
	if *n <= 0 {
		*n = value
	}
}
