package embedded

import (
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// There are many times, and most of them differ, so walking through their terms is slow. Therefore
// their values are also stored by row.
const (
	// yearZero is the number of seconds from the year 0 to the start of Unix time.
	yearZero = 62_167_219_200
	// secondsPerDay excludes leap seconds, like Unix time. lastDay is a day after those of most times.
	secondsPerDay = 24 * 60 * 60
	lastDay       = 2200 * 366
)

// timeValue returns a time in seconds since the year 0, plus one, because 0 means no time.
func timeValue(at time.Time) int64 { return at.Unix() + yearZero + 1 }

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
	contain := func(layout string, unit, limit int64) func(number int64) bool {
		return remembered(limit, func(number int64) bool {
			return query.ContainsFold(time.Unix(number*unit-yearZero, 0).UTC().Format(layout), keyword)
		})
	}
	inDay, inSecond := contain(layoutDay, secondsPerDay, lastDay), contain(layoutTime, 1, secondsPerDay)
	ofDay := strings.Contains(keyword, "-")
	u.addTimes(p, func(value int64) bool {
		since := value - 1
		return inDay(since/secondsPerDay) || !ofDay && inSecond(since%secondsPerDay)
	})
}

// remembered returns a function that calls another one only once for each number below a limit.
func remembered(limit int64, holds func(number int64) bool) func(number int64) bool {
	const no, yes = 1, 2
	results := make([]uint8, limit)
	return func(number int64) bool {
		if number >= limit {
			return holds(number)
		}
		if results[number] == 0 {
			results[number] = no
			if holds(number) {
				results[number] = yes
			}
		}
		return results[number] == yes
	}
}

// spansT reports whether a keyword contains characters on both sides of a T.
func spansT(keyword string) bool {
	return len(keyword) > 2 && strings.ContainsAny(keyword[1:len(keyword)-1], "tT")
}
