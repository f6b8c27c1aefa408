package query

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// ParseNumber parses a text that is a JSON number in the range of float64.
func ParseNumber(text string) (float64, bool) {
	if length := numberLength(text); length == 0 || length != len(text) {
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	return number, err == nil
}

// numberLength returns the length of the JSON number at the beginning of a text, or 0 if there is none.
func numberLength(text string) int {
	at := 0
	if at < len(text) && text[at] == '-' {
		at++
	}
	whole := digits(text[at:])
	switch {
	case whole == 0:
		return 0
	case text[at] == '0':
		at++
	default:
		at += whole
	}
	if at < len(text) && text[at] == '.' {
		fraction := digits(text[at+1:])
		if fraction == 0 {
			return 0
		}
		at += 1 + fraction
	}
	if at < len(text) && (text[at] == 'e' || text[at] == 'E') {
		sign := at + 1
		if sign < len(text) && (text[sign] == '+' || text[sign] == '-') {
			sign++
		}
		exponent := digits(text[sign:])
		if exponent == 0 {
			return 0
		}
		at = sign + exponent
	}
	return at
}

// digits returns the number of digits at the beginning of a text.
func digits(text string) int {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return i
		}
	}
	return len(text)
}

// ParseTime parses a time of RFC 3339 and returns it in UTC.
func ParseTime(text string) (time.Time, bool) {
	if len(text) < len("2006-01-02T15:04:05Z") ||
		text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' {
		return time.Time{}, false
	}
	// Unlike RFC 3339, time.Parse also accepts a comma before the fraction.
	if text[19] == ',' {
		return time.Time{}, false
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, false
	}
	return parsed.UTC(), true
}

// IsTime reports whether a text is a time of RFC 3339.
func IsTime(text string) bool {
	_, is := ParseTime(text)
	return is
}

// OrderKey is the text of a leaf in a form that is fast to compare.
type OrderKey struct {
	Text   string
	rank   uint8
	number float64
	at     time.Time
}

const (
	rankNumber = iota
	rankTime
	rankText
)

// NewOrderKey returns the key of a text. Strings in the form of numbers or times are treated as such.
func NewOrderKey(text string) OrderKey {
	if number, is := ParseNumber(text); is {
		return OrderKey{Text: text, rank: rankNumber, number: number}
	}
	if at, is := ParseTime(text); is {
		return OrderKey{Text: text, rank: rankTime, at: at}
	}
	return PlainOrderKey(text)
}

// PlainOrderKey returns the key of a text that is neither a number nor a time.
func PlainOrderKey(text string) OrderKey { return OrderKey{Text: text, rank: rankText} }

// Compare orders numbers by value before times, and times before other texts, which are ordered by bytes. It returns 0
// for "1" and "1.0".
func (k *OrderKey) Compare(other *OrderKey) int {
	if k.rank != other.rank {
		return cmp.Compare(k.rank, other.rank)
	}
	switch k.rank {
	case rankNumber:
		return cmp.Compare(k.number, other.number)
	case rankTime:
		return k.at.Compare(other.at)
	default:
		return strings.Compare(k.Text, other.Text)
	}
}

// CompareTexts orders the texts of leaves by their keys.
func CompareTexts(a, b string) int {
	x, y := NewOrderKey(a), NewOrderKey(b)
	return x.Compare(&y)
}

// OrderText returns the text by which a leaf is ordered. That of a leaf with a key is "key=value".
func OrderText(leaf Leaf) string {
	if leaf.Key == "" {
		return leaf.Text
	}
	return LeafText(Map, leaf)
}
