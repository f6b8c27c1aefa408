package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Keywords are found by tokens. Tokens are the runs of letters and digits in a text. Resources have
// terms for their tokens, and a table contains all tokens. A text can contain the keyword
// "ginx-prox" only if one of its tokens ends with "ginx" and another token begins with "prox".

const (
	// longToken is the maximum length of a token in bytes.
	longToken = 128
	// anyLong represents all longer tokens in the table.
	anyLong = ""
)

func inToken(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c >= utf8.RuneSelf
}

// tokens executes call for each token of a lower-case text, with its position. A token may occur
// twice.
func tokens(text string, call func(token string, begin int)) {
	for at := 0; at < len(text); {
		if !inToken(text[at]) {
			at++
			continue
		}
		begin := at
		for at < len(text) && inToken(text[at]) {
			at++
		}
		call(text[begin:at], begin)
	}
}

// tokenKey identifies a token. Tokens of Secrets of managed clusters are counted separately.
type tokenKey struct {
	secret bool
	token  string
}

// tokenCount is a token with the change of its resource count.
type tokenCount struct {
	row tokenRow
	// last is the last counted resource, so that each resource counts once.
	last int
}

// tokenCounts contains the tokens that a report changes.
type tokenCounts struct {
	hash      hasher
	byToken   map[tokenKey]*tokenCount
	resources int
}

func newTokenCounts(hash hasher) *tokenCounts {
	return &tokenCounts{hash: hash, byToken: map[tokenKey]*tokenCount{}}
}

// add counts the tokens of a resource and appends their terms. If by is -1, it subtracts them.
func (t *tokenCounts) add(secret bool, words string, by int64, terms []int64) []int64 {
	t.resources++
	tokens(words, func(token string, _ int) {
		if len(token) > longToken {
			token = anyLong
		}
		one := t.byToken[tokenKey{secret, token}]
		if one == nil {
			one = &tokenCount{row: tokenRow{Secret: secret, Token: strings.Clone(token), Term: t.hash.sum(hashToken, token)}}
			t.byToken[tokenKey{secret, one.row.Token}] = one
		}
		if one.last != t.resources {
			one.last = t.resources
			one.row.N += by
			terms = append(terms, one.row.Term)
		}
	})
	return terms
}

// tokenRow is a row of the table tokens.
type tokenRow struct {
	Secret bool   `json:"secret"`
	Token  string `json:"token"`
	Term   int64  `json:"term"`
	N      int64  `json:"n"`
}

var tokenTable = countTable{name: "tokens", key: []string{"term", "secret"}, types: "secret boolean, token text, term bigint, n bigint"}

// store updates the table. The caller must hold the lock of the cluster.
func (t *tokenCounts) store(ctx context.Context, p *pipeline, cluster int32) error {
	var rows []tokenRow
	for _, one := range t.byToken {
		rows = append(rows, one.row)
	}
	// Inserts are faster in the order of the key.
	slices.SortFunc(rows, func(x, y tokenRow) int { return cmp.Compare(x.Term, y.Term) })
	return addCounts(ctx, p, &tokenTable, cluster, rows, func(r *tokenRow) int64 { return r.N })
}

// keywordCondition is true for resources that contain a keyword, and for resources of clusters
// whose names contain it.
type keywordCondition struct {
	// terms contains sets of terms. A resource must have one term of each set. It is empty if there
	// would be too many terms.
	terms [][]int64
	// pattern is the LIKE pattern of the words. It is empty if the terms are sufficient.
	pattern  string
	clusters []int32
}

// addKeyword looks up the tokens for the parts of a keyword.
func (c *condition) addKeyword(ctx context.Context, v *view, keyword string) error {
	keyword = query.Fold(escape(keyword))
	one := keywordCondition{pattern: "%" + likeText.Replace(keyword) + "%"}
	for i := range c.selection.clusters {
		if strings.Contains(query.Fold(escape(c.selection.clusters[i].name)), keyword) {
			one.clusters = append(one.clusters, c.selection.clusters[i].id)
		}
	}
	whole, many := true, false
	var lookups []string
	tokens(keyword, func(token string, begin int) {
		pattern := likeText.Replace(token)
		if begin == 0 {
			pattern = "%" + pattern
		}
		if begin+len(token) == len(keyword) {
			pattern += "%"
		}
		lookups = append(lookups, pattern)
	})
	for _, pattern := range lookups {
		terms, long, err := v.tokens(ctx, c, pattern)
		if err != nil {
			return fmt.Errorf("words: %w", err)
		}
		if len(terms) > maxTerms {
			many = true
			continue
		}
		whole = whole && !long
		one.terms = append(one.terms, terms)
	}
	if len(lookups) == 1 && lookups[0] == one.pattern && whole && !many {
		one.pattern = ""
	}
	c.keywords = append(c.keywords, one)
	return nil
}

// tokens returns the terms of the tokens that match a pattern, and reports whether long tokens are
// among them. It may return more than maxTerms.
func (v *view) tokens(ctx context.Context, c *condition, pattern string) (terms []int64, long bool, err error) {
	b := c.builder()
	of := ""
	if len(c.selection.clusters) < c.clusters {
		of = " AND cluster = ANY(" + b.arg(c.selection.clusterIDs()) + "::integer[])"
	}
	statement := fmt.Sprintf("(SELECT DISTINCT term, false FROM %[1]s WHERE token LIKE %[2]s%[3]s LIMIT %[4]d)"+
		" UNION ALL (SELECT term, true FROM %[1]s WHERE term = %[5]s%[3]s LIMIT 1)",
		table("tokens"), b.arg(pattern), of, maxTerms+1, b.arg(v.engine.hash.sum(hashToken, anyLong)))
	var term int64
	var isLong bool
	err = v.rows(ctx, statement, b.args, []any{&term, &isLong}, func() error {
		terms = append(terms, term)
		long = long || isLong
		return nil
	})
	slices.Sort(terms)
	return terms, long, err
}

func (k *keywordCondition) where(b *builder) string {
	var parts []string
	for _, terms := range k.terms {
		parts = append(parts, "r.terms && "+b.arg(terms)+"::bigint[]")
	}
	if k.pattern != "" {
		parts = append(parts, "r.words LIKE "+b.arg(k.pattern))
	}
	part := strings.Join(parts, " AND ")
	if len(k.clusters) > 0 {
		part = fmt.Sprintf("(%s OR r.cluster = ANY(%s::integer[]))", part, b.arg(k.clusters))
	}
	return part
}
