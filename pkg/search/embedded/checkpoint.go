package embedded

import (
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// A checkpoint is a copy of a state on disk, with its indexes, so that a start does not index all
// resources again. The files of the clusters remain the data: a checkpoint contains the length and
// the checksum of each file at its version, and is used only for clusters whose file still begins
// with the same entries. Later entries are applied to it. A checkpoint that is damaged or has
// another format is removed, and all files are loaded.
//
// The file is mapped into memory. Texts, rows, lists and bitmaps stay in the mapping until they
// change. They are pages of the file, which the kernel can drop and read again, and the garbage
// collector does not read them. The mapping is never removed, because states refer to it. If the disk
// cannot read a page, the process ends, and the next start finds the damage.
const (
	checkpointFile = "search.checkpoint"
	// checkpointFormat must change if the file changes, or if the engine would derive other data
	// from the same resources, such as classes, kinds of text or trigrams.
	checkpointFormat = 2
	checkpointMagic  = "hubindex"
	// checkpointHeader is the size of the header: the magic, the format in the order of bytes of
	// the machine, the checksum and the length of the content.
	checkpointHeader = 8 + 4 + 4 + 8
	// checkpointAlign is the alignment of all parts.
	checkpointAlign = 8
	// checkpointFlush is the number of bytes after which written data are flushed to disk, so that
	// other writers to the same disk wait only for little.
	checkpointFlush = 16 << 20
)

// snapshot is a state and the files that contain it.
type snapshot struct {
	state *state
	files map[string]clusterFile
}

// checkpointRecord contains the parts of a state that are small.
type checkpointRecord struct {
	Version, HubClasses uint64
	Visible             int
	Properties          []propertyRecord
	Fields              []fieldRecord
	Classes             []classRecord
	Clusters            []clusterIndex
	Relations           []string
}

type propertyRecord struct {
	Name      string
	Used      bool
	Counts    [4]int
	EmptyKeys int
	Keys      []uint32
}

type fieldRecord struct {
	Property uint32
	Kind     query.Type
	Key      string
}

type classRecord struct {
	Class   visibility.Class
	Cluster uint32
	Pending bool
}

// clusterIndex contains a cluster, and the part of its file that the checkpoint contains.
type clusterIndex struct {
	Name                   string
	Record                 clusterRecord
	Present                bool
	Classes, SecretClasses []uint32
	Pending                uint32
	Length, Live           int
	Sum                    uint32
}

func (s *state) record(files map[string]clusterFile) *checkpointRecord {
	r := &checkpointRecord{Version: s.version, HubClasses: s.hubClasses, Visible: s.visible}
	for i := range uint32(s.relations.len()) {
		r.Relations = append(r.Relations, s.relations.get(i))
	}
	for i := range uint32(s.properties.len()) {
		p := s.properties.get(i)
		id, known := s.propertyNames[p.name]
		r.Properties = append(r.Properties, propertyRecord{p.name, known && id == i, p.counts, p.emptyKeys, p.keys})
	}
	for i := range uint32(s.fields.len()) {
		f := s.fields.get(i)
		r.Fields = append(r.Fields, fieldRecord{f.property, f.kind, f.key})
	}
	for i := range uint32(s.classes.len()) {
		c := s.classes.at(i)
		r.Classes = append(r.Classes, classRecord{c.class, c.cluster, c.pending})
	}
	for _, c := range s.clusters {
		file := files[c.name]
		r.Clusters = append(r.Clusters, clusterIndex{
			Name: c.name, Record: c.record(), Present: c.present, Classes: c.classes, SecretClasses: c.secretClasses, Pending: c.pending,
			Length: file.length, Live: file.live, Sum: file.sum,
		})
	}
	return r
}

// restore is the reverse of record.
func (r *checkpointRecord) restore(s *state) {
	s.version, s.hubClasses, s.visible = r.Version, r.HubClasses, r.Visible
	for i, p := range r.Properties {
		*s.properties.edit(0, uint32(i)) = newProperty(0, p.Name)
		restored := s.properties.get(uint32(i))
		restored.counts, restored.emptyKeys, restored.keys = p.Counts, p.EmptyKeys, p.Keys
		if p.Used {
			s.propertyNames[p.Name] = uint32(i)
		}
	}
	for i, f := range r.Fields {
		*s.fields.edit(0, uint32(i)) = newField(f.Property, f.Kind, f.Key)
	}
	for i, c := range r.Classes {
		*s.classes.edit(0, uint32(i)) = class{class: interned(c.Class.Cluster, c.Class), cluster: c.Cluster, pending: c.Pending}
	}
	for i, c := range r.Clusters {
		s.clusterNames[c.Name] = uint32(i)
		s.clusters = append(s.clusters, &cluster{
			id: uint32(i), name: c.Name, hub: c.Record.Hub, present: c.Present, classes: c.Classes, secretClasses: c.SecretClasses,
			edges: c.Record.Edges, reported: c.Record.Reported, incomplete: c.Record.Incomplete, pending: c.Pending,
		})
	}
	for i, name := range r.Relations {
		*s.relations.edit(0, uint32(i)) = name
	}
}

// sets returns the postings outside of the dictionary, of the classes, properties and clusters that
// another state has, too.
func (s *state) sets(of *state) []*postings {
	var sets []*postings
	for i := range uint32(of.classes.len()) {
		sets = append(sets, &s.classes.at(i).rows)
	}
	for i := range uint32(of.properties.len()) {
		p := s.properties.get(i)
		for j := range p.variants {
			sets = append(sets, &p.variants[j])
		}
	}
	for _, c := range s.clusters[:len(of.clusters)] {
		sets = append(sets, &c.rows, &c.secrets, &c.unknown)
	}
	return sets
}
