package ingest

const (
	// DefaultClusterResources and DefaultClusterBytes are the default limits of one cluster. They
	// are ten times the size of a cluster with 500 nodes.
	DefaultClusterResources = 500_000
	DefaultClusterBytes     = 1 << 30
)

// Limits bounds one report. A field that is 0 has its default.
type Limits struct {
	// BodyBytes bounds the body, both as sent and decompressed; 512 MiB by default.
	BodyBytes int64
	// ResourceBytes bounds the JSON of a resource's properties; 64 KiB by default.
	ResourceBytes int
	// Properties bounds the properties of a resource; 256 by default.
	Properties int
	// Resources bounds the new, changed and deleted resources; 1,000,000 by default.
	Resources int
	// Values bounds the single values of all resources, such as elements of lists, because a value
	// of two bytes takes twenty times as much memory. The default is 8,000,000, which is enough for
	// 400,000 resources with the usual 20 values each.
	Values int
	// Edges bounds the new and deleted edges; 5,000,000 by default.
	Edges int
	// Names bounds the different names of the properties of all resources; 5,000 by default.
	Names int
	// Relations bounds the different types of the added edges; 1,024 by default.
	Relations int
	// Errors bounds the number of errors in each list of the response; 1,000 by default. Further
	// errors are only counted.
	Errors int
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.BodyBytes, 512<<20)
	orDefault(&l.ResourceBytes, 64<<10)
	orDefault(&l.Properties, 256)
	orDefault(&l.Resources, 1_000_000)
	orDefault(&l.Values, 8_000_000)
	orDefault(&l.Edges, 5_000_000)
	orDefault(&l.Names, 5_000)
	orDefault(&l.Relations, 1_024)
	orDefault(&l.Errors, 1_000)
	return l
}

func orDefault[N int | int64](n *N, value N) {
	if *n <= 0 {
		*n = value
	}
}
