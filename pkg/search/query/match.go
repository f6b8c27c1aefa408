package query

import (
	"strings"
	"time"
)

// Matches reports whether a resource of a cluster matches the query. now is the reference time of
// ages. The results of all engines must be equal to its results.
func (q *Query) Matches(cluster string, properties Properties, now time.Time) bool {
	for i := range q.Filters {
		if !q.Filters[i].matches(cluster, properties, now) {
			return false
		}
	}
	for _, keyword := range q.Keywords {
		if !containsKeyword(cluster, properties, keyword) {
			return false
		}
	}
	return true
}

func (f *Filter) matches(cluster string, properties Properties, now time.Time) bool {
	t, leaves := String, []Leaf(nil)
	var name [1]Leaf
	if f.Property == Cluster {
		name[0] = Leaf{Type: String, Text: cluster}
		leaves = name[:]
	} else if p := properties.Get(f.Property); p != nil {
		t, leaves = p.Type, p.Leaves
	}
	wanted, found := false, false
	for i := range f.Comparisons {
		c := &f.Comparisons[i]
		if c.Op != NotEqual {
			wanted = true
			if found {
				continue
			}
		}
		holds := false
		for j := range leaves {
			if c.MatchesLeaf(f.Property, t, leaves[j], now) {
				holds = true
				break
			}
		}
		if c.Op != NotEqual {
			found = holds
		} else if holds {
			return false
		}
	}
	return found || !wanted
}

func containsKeyword(cluster string, properties Properties, keyword string) bool {
	if ContainsFold(cluster, keyword) {
		return true
	}
	for i := range properties {
		p := &properties[i]
		if Hidden(p.Name) || p.Name == Cluster {
			continue
		}
		for j := range p.Leaves {
			leaf := &p.Leaves[j]
			if ContainsFold(leaf.Text, keyword) {
				return true
			}
			if p.Type == Map && (ContainsFold(leaf.Key, keyword) || spansPair(leaf, keyword)) {
				return true
			}
		}
	}
	return false
}

// spansPair reports whether "key=value" contains a keyword that may span key and value. Its time must not grow with the
// number of "=" in the keyword: both texts are crafted easily.
func spansPair(leaf *Leaf, keyword string) bool {
	return len(keyword) <= len(leaf.Key)+1+len(leaf.Text) && strings.IndexByte(keyword, '=') >= 0 && ContainsFold(LeafText(Map, *leaf), keyword)
}

// MatchesLeaf reports whether the comparison holds for one leaf of a property of type t. For
// NotEqual, it reports whether Equal holds. now is the reference time of ages.
func (c *Comparison) MatchesLeaf(property string, t Type, leaf Leaf, now time.Time) bool {
	text := leaf.Text
	if t == Map {
		switch {
		case !strings.Contains(c.Text, "="):
			text = leaf.Key
		case (c.Op == Equal || c.Op == NotEqual) && property != Kind && !c.couldBePair(leaf):
			return false
		default:
			text = LeafText(Map, leaf)
		}
	}
	switch c.Op {
	case Less, LessOrEqual, Greater, GreaterOrEqual:
		return c.orders(text, now)
	default:
		return c.equals(property, text, now)
	}
}

// couldBePair returns false for most pairs that do not match, so that they are not concatenated.
func (c *Comparison) couldBePair(leaf Leaf) bool {
	length := len(leaf.Key) + 1 + len(leaf.Text)
	if !c.Wildcard() && length != len(c.Text) {
		return false
	}
	if len(c.Parts) == 0 {
		return true
	}
	first, last := c.Parts[0], c.Parts[len(c.Parts)-1]
	head, tail := min(len(first), len(leaf.Key)), min(len(last), len(leaf.Text))
	return leaf.Key[:head] == first[:head] && leaf.Text[len(leaf.Text)-tail:] == last[len(last)-tail:]
}

// equals reports whether the comparison holds with the operator Equal.
func (c *Comparison) equals(property, text string, now time.Time) bool {
	if c.Age > 0 {
		if at, is := ParseTime(text); is {
			return at.After(now.Add(-c.Age))
		}
	}
	if c.Number != nil {
		if number, is := ParseNumber(text); is {
			return number == *c.Number
		}
	}
	if property == Kind && c.Text != "" && 'a' <= c.Text[0] && c.Text[0] <= 'z' {
		return matchParts(c.Parts, text, equalFold, indexFold)
	}
	if len(c.Parts) == 1 {
		return text == c.Parts[0]
	}
	return matchParts(c.Parts, text, func(a, b string) bool { return a == b }, strings.Index)
}

// orders reports whether an ordering operator holds.
func (c *Comparison) orders(text string, now time.Time) bool {
	var order int
	switch {
	case c.Number != nil:
		number, is := ParseNumber(text)
		switch {
		case !is:
			return false
		case number < *c.Number:
			order = -1
		case number > *c.Number:
			order = 1
		}
	case c.Time != nil || c.Age > 0:
		at, is := ParseTime(text)
		if !is {
			return false
		}
		if c.Age > 0 {
			order = at.Compare(now.Add(-c.Age))
		} else {
			order = at.Compare(*c.Time)
		}
	default:
		order = strings.Compare(text, c.Text)
	}
	switch c.Op {
	case Less:
		return order < 0
	case LessOrEqual:
		return order <= 0
	case Greater:
		return order > 0
	default:
		return order >= 0
	}
}

// matchParts reports whether a text consists of the given parts with any text between them.
func matchParts(parts []string, text string, equal func(a, b string) bool, index func(text, part string) int) bool {
	if len(parts) == 0 {
		return false
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return len(text) == len(first) && equal(text, first)
	}
	if len(text) < len(first)+len(last) ||
		!equal(text[:len(first)], first) || !equal(text[len(text)-len(last):], last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// LeafText returns the text of a leaf of a property of type t for keywords, patterns and
// completions. For a map, it is "key=value".
func LeafText(t Type, leaf Leaf) string {
	if t == Map {
		return leaf.Key + "=" + leaf.Text
	}
	return leaf.Text
}

// ContainsFold reports whether a text contains a keyword. It compares ASCII letters
// case-insensitively. It allocates only for long keywords in long texts.
func ContainsFold(text, lowerKeyword string) bool { return indexFold(text, lowerKeyword) >= 0 }

// indexFold returns the index of a part in a text, or -1. It compares ASCII letters
// case-insensitively.
func indexFold(text, part string) int {
	if part == "" {
		return 0
	}
	if len(part) > longFold && len(text) > 4*longFold {
		return strings.Index(Fold(text), Fold(part))
	}
	first, rest := lower[part[0]], part[1:]
	for i := 0; i+len(part) <= len(text); i++ {
		if lower[text[i]] == first && equalFold(text[i+1:i+len(part)], rest) {
			return i
		}
	}
	return -1
}

// longFold is the length above which a part is not compared at each index of a text. For crafted
// texts, that would take time proportional to the product of both lengths.
const longFold = 16

// Fold returns a text with ASCII letters in lower case.
func Fold(text string) string {
	out := make([]byte, len(text))
	for i := range len(text) {
		out[i] = lower[text[i]]
	}
	return string(out)
}

// equalFold reports whether two texts of equal length are equal. It compares ASCII letters
// case-insensitively.
func equalFold(a, b string) bool {
	for i := range len(a) {
		if lower[a[i]] != lower[b[i]] {
			return false
		}
	}
	return true
}

// lower maps ASCII letters to lower case and other bytes to themselves.
var lower = func() (table [256]byte) {
	for i := range table {
		table[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			table[i] = byte(i) + 'a' - 'A'
		}
	}
	return table
}()
