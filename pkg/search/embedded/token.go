package embedded

import "open-cluster-management.io/hub-apiserver/pkg/search"

// rowBytes is the length of the number of a row in a search.Place.
const rowBytes = 4

// token consists of the sort keys and the UID of the last item before a page.
type token struct {
	keys []sortKey
	uid  string
}

func newToken(place *search.Place) *token {
	t := &token{uid: place.UID}
	for _, key := range place.Keys {
		if key == nil {
			t.keys = append(t.keys, sortKey{missing: true})
		} else {
			t.keys = append(t.keys, newSortKey(*key))
		}
	}
	return t
}

// within returns the position among the rows whose first key is equal to a key, or nil if no row before the page has this key.
func (t *token) within(key *sortKey) *token {
	if t == nil || key.compare(&t.keys[0], false) != 0 {
		return nil
	}
	return &token{keys: t.keys[1:], uid: t.uid}
}

// placeOf returns the place after a row in an order.
func (s *state) placeOf(row uint32, by []search.Order) search.Place {
	place := search.Place{UID: s.uid(row)}
	for _, order := range by {
		key := s.sortKey(row, order.Property)
		text := &key.Text
		if key.missing {
			text = nil
		}
		place.Keys = append(place.Keys, text)
	}
	return place
}
