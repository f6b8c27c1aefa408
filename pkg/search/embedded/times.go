package embedded

import (
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Times are many and mostly different, so that to go through their terms is slow. Their
// values are kept by row too.
const (
	// timeBase makes all values positive; 0 is none.
	timeBase = 62_167_219_200 + 1
	// secondsPerDay is without leap seconds, as Unix time is.
	secondsPerDay = 24 * 60 * 60
)

// timeValue is a time in seconds since the year 0, plus one.
func timeValue(at time.Time) int64 { return at.Unix() + timeBase }

// setTimes notes a time for rows, if it is one that is kept by row.
func (t *transaction) setTimes(number uint32, rows ...uint32) {
	e := t.terms.at(number)
	if !e.info().canonical() {
		return
	}
	f := t.state.fields.get(e.info().field())
	if f.kind != query.String {
		return
	}
	at, _ := query.ParseTime(t.textOf(e))
	p := t.editProperty(f.property)
	for _, row := range rows {
		*p.times.edit(t.id, row) = timeValue(at)
	}
}

// clearTime forgets the time of a row.
func (t *transaction) clearTime(number, row uint32) {
	info := t.terms.at(number).info()
	if !info.canonical() {
		return
	}
	if f := t.state.fields.get(info.field()); f.kind == query.String {
		*t.editProperty(f.property).times.edit(t.id, row) = 0
	}
}

// timesByRow tells whether all times of a property are kept by row.
func (p *property) timesByRow() bool {
	return p.counts[orderTime>>4] > 0 && p.counts[orderOdd>>4] == 0 && p.variants[query.List].empty()
}

// addTimes adds the rows whose time is one of those that holds tells.
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

// timeRange gives the values that a comparison holds for: those from first to last.
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

// Texts of times.
const (
	layoutDay  = "2006-01-02T"
	layoutTime = "T15:04:05Z"
)

// addTimesContaining adds the rows whose time contains a keyword, which has nothing on
// both sides of the T.
func (u *union) addTimesContaining(p *property, keyword string) {
	seconds := make([]int8, secondsPerDay)
	// Most days are in the years from 1970 to 2100; others are looked at each time.
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

// spansT tells whether a keyword has something on both sides of a T.
func spansT(keyword string) bool {
	for i := 1; i < len(keyword)-1; i++ {
		if keyword[i] == 'T' || keyword[i] == 't' {
			return true
		}
	}
	return false
}
