package clusterpermission

import (
	"slices"
	"strings"
)

// content is the rules of roles or the subjects of bindings: those of one part of
// a spec, or what several parts have together. Every item is encoded once, and
// objects that the same parts are put into share one content, which is merged and
// written once for all of them.
type content struct {
	// field is the name of the list in a manifest.
	field string
	// items are those of the last part, encoded.
	items []string
	// count is how many items all parts have.
	count int
	// before is what the parts before the last one have; nil for the only part.
	before *content
	// next are the contents that further parts have made of this one.
	next map[*content]*content
	// encoded is the list as it is in manifests, after a comma; nil until it is needed.
	encoded []byte
}

func newContent[T rule | subject](field string, items []T) *content {
	c := &content{field: field, items: make([]string, len(items)), count: len(items)}
	for i, item := range items {
		c.items[i] = string(encode(item))
	}
	return c
}

// with gives what c and another part have together.
func (c *content) with(part *content) *content {
	if known := c.next[part]; known != nil {
		return known
	}
	together := &content{field: c.field, items: part.items, count: c.count + part.count, before: c}
	if c.next == nil {
		c.next = map[*content]*content{}
	}
	c.next[part] = together
	return together
}

// steps are those that encode will take.
func (c *content) steps() int64 {
	if c.encoded != nil || c.before == nil {
		return 0
	}
	return itemSteps * int64(c.count)
}

func (c *content) encode() []byte {
	if c.encoded == nil {
		c.encoded = []byte(`,"` + c.field + `":[` + strings.Join(c.all(), ",") + `]`)
	}
	return c.encoded
}

// all are the items of the first part as they are, and of each further part those
// that are not there yet.
func (c *content) all() []string {
	if c.before == nil {
		return c.items
	}
	var parts [][]string
	for part := c; part != nil; part = part.before {
		parts = append(parts, part.items)
	}
	all := make([]string, 0, c.count)
	known := make(map[string]bool, c.count)
	for i, items := range slices.Backward(parts) {
		first := i == len(parts)-1
		for _, item := range items {
			if first || !known[item] {
				all = append(all, item)
				known[item] = true
			}
		}
	}
	return all
}
