package embedded

import (
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// There are many times, and most of them differ, so walking through their terms is slow. Therefore
// their values are also stored by row.
const (
	// timeBase makes all values positive. 0 means no time.
	timeBase = 62_167_219_200 + 1
	// secondsPerDay excludes leap seconds, like Unix time.
	secondsPerDay = 24 * 60 * 60
)

// timeValue returns a time in seconds since the year 0, plus one.
func timeValue(at time.Time) int64 { return at.Unix() + timeBase }

// timesByRow reports whether all times of a property are stored by row.
func (p *property) timesByRow() bool {
	return p.counts[orderTime>>4] > 0 && p.counts[orderOdd>>4] == 0 && p.variants[query.List].empty()
}

// storedByRow reports whether a term is a time that is stored by row.
func (d *dictionary) storedByRow(t *term) bool {
	return t.info().canonical() && d.fields.get(t.info().field()).kind == query.String
}

// indexTimes stores the times of all rows.
func (s *state) indexTimes() {
	for i := uint32(1); i < uint32(s.terms.len()); i++ {
		t := s.terms.at(i)
		if !s.storedByRow(t) {
			continue
		}
		at, _ := query.ParseTime(t.text)
		p := s.properties.get(s.fields.get(t.info().field()).property)
		t.postings.each(func(row uint32) bool {
			*p.times.edit(0, row) = timeValue(at)
			return true
		})
	}
}

// addTimes adds the rows for whose times holds returns true.
func (u *union) addTimes(p *property, holds func(value int64) bool) {
	u.begin()
	p.times.each(func(first uint32, values *[leafSize]int64) {
		word := uint64(0)
		for i, value := range values {
			if value != 0 && holds(value) {
				word |= 1 << i
			}
		}
		if word != 0 {
			u.rows[first/leafSize] |= word
		}
	})
}

// timeRange returns the first and the last value for which a comparison holds.
func timeRange(c *query.Comparison, now time.Time) (first, last int64) {
	const most = 1 << 62
	bound := now.Add(-c.Age)
	if c.Age == 0 {
		bound = *c.Time
	}
	at, whole := timeValue(bound), bound.Nanosecond() == 0
	switch {
	case c.Op == query.Less && whole:
		return 1, at - 1
	case c.Op == query.Less || c.Op == query.LessOrEqual:
		return 1, at
	case c.Op == query.GreaterOrEqual && whole:
		return at, most
	default:
		return at + 1, most
	}
}

const (
	layoutDay  = "2006-01-02T"
	layoutTime = "T15:04:05Z"
)

// addTimesContaining adds the rows whose time contains a keyword. The keyword must not contain
// characters on both sides of a T.
func (u *union) addTimesContaining(p *property, keyword string) {
	seconds := make([]int8, secondsPerDay)
	// Most days are in the years from 1970 to 2100. The result is cached only for these days.
	const lastDay = 131 * 366
	days := make([]int8, lastDay)
	inDay := func(day int64) bool {
		return query.ContainsFold(time.Unix(day*secondsPerDay, 0).UTC().Format(layoutDay), keyword)
	}
	u.addTimes(p, func(value int64) bool {
		unix := value - timeBase
		day, second := unix/secondsPerDay, unix%secondsPerDay
		if second < 0 {
			day, second = day-1, second+secondsPerDay
		}
		if day < 0 || day >= lastDay {
			if inDay(day) {
				return true
			}
		} else {
			if days[day] == 0 {
				days[day] = -1
				if inDay(day) {
					days[day] = 1
				}
			}
			if days[day] > 0 {
				return true
			}
		}
		if seconds[second] == 0 {
			seconds[second] = -1
			if query.ContainsFold(time.Unix(second, 0).UTC().Format(layoutTime), keyword) {
				seconds[second] = 1
			}
		}
		return seconds[second] > 0
	})
}

// spansT reports whether a keyword contains characters on both sides of a T.
func spansT(keyword string) bool {
	for i := 1; i < len(keyword)-1; i++ {
		if keyword[i] == 'T' || keyword[i] == 't' {
			return true
		}
	}
	return false
}
