package clusterpermission

import (
	"slices"
	"strings"
)

// content contains the rules of roles or the subjects of bindings, from one part of a
// spec or as the union of several parts. Objects with the same parts share one content,
// so that it is encoded and merged once.
type content struct {
	// field is the name of the list in a manifest.
	field string
	// items are the encoded items of the last part.
	items []string
	// count is the number of items of all parts.
	count int
	// before is the union of the parts before the last one; nil for a single part.
	before *content
	// next caches the unions of this content with further parts.
	next map[*content]*content
	// encoded is the list as in manifests, with a leading comma; nil until it is needed.
	encoded []byte
}

func newContent[T rule | subject](field string, items []T) *content {
	c := &content{field: field, items: make([]string, len(items)), count: len(items)}
	for i, item := range items {
		c.items[i] = string(encode(item))
	}
	return c
}

// with returns the union of c and another part.
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

// steps returns the cost of encode.
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

// all returns the items of the first part, duplicates included, and the new items of each
// further part.
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
