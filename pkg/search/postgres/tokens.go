package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Keywords are found by tokens: the runs of letters and digits of a text. A resource has
// terms for its tokens, and the tokens that exist are a table. A keyword "ginx-prox" is in a text
// only if a token ends with "ginx" and another begins with "prox".

const (
	// longToken is how many bytes of a token are kept as one.
	longToken = 128
	// anyLong stands in the table for tokens that are longer.
	anyLong = ""
)

func inToken(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c >= utf8.RuneSelf
}

// tokens calls for each token of a lower-case text, with its position; a token may come twice.
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

// tokenCount is a token, and how many resources more or fewer have it.
type tokenCount struct {
	term int64
	more int64
	// last is the resource that was counted last, so that each counts once.
	last int
}

// tokenCounts are the tokens that a report concerns, those of Secrets of managed clusters apart.
type tokenCounts struct {
	hash      hasher
	byToken   [2]map[string]*tokenCount
	resources int
}

func newTokenCounts(hash hasher) *tokenCounts {
	return &tokenCounts{hash: hash, byToken: [2]map[string]*tokenCount{{}, {}}}
}

// add counts the tokens of a resource, or with -1 takes them away, and appends their terms.
func (t *tokenCounts) add(secret bool, words string, by int64, terms []int64) []int64 {
	t.resources++
	byToken := t.byToken[0]
	if secret {
		byToken = t.byToken[1]
	}
	tokens(words, func(token string, _ int) {
		if len(token) > longToken {
			token = anyLong
		}
		one := byToken[token]
		if one == nil {
			one = &tokenCount{term: t.hash.sum(hashToken, token)}
			byToken[strings.Clone(token)] = one
		}
		if one.last != t.resources {
			one.last = t.resources
			one.more += by
			terms = append(terms, one.term)
		}
	})
	return terms
}

// sorted are the tokens whose numbers change, in the order of their terms.
func (t *tokenCounts) sorted(of int) []string {
	sorted := make([]string, 0, len(t.byToken[of]))
	for token, one := range t.byToken[of] {
		if one.more != 0 {
			sorted = append(sorted, token)
		}
	}
	slices.SortFunc(sorted, func(x, y string) int { return cmp.Compare(t.byToken[of][x].term, t.byToken[of][y].term) })
	return sorted
}

// store brings the table up to date; that of a fresh cluster has nothing of it yet. The cluster's
// lock must be held.
func (t *tokenCounts) store(ctx context.Context, e *Engine, tx pgx.Tx, cluster int32, fresh bool) error {
	var texts []string
	var secret []bool
	var terms, more, fewer []int64
	for i := range t.byToken {
		// In the order of the table's key, which takes them faster so.
		for _, token := range t.sorted(i) {
			one := t.byToken[i][token]
			secret, texts, terms, more = append(secret, i == 1), append(texts, token), append(terms, one.term), append(more, one.more)
			if one.more < 0 {
				fewer = append(fewer, one.term)
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	if fresh {
		columns := []string{"cluster", "secret", "token", "term", "n"}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{e.options.Schema, "tokens"}, columns, pgx.CopyFromSlice(len(texts), func(i int) ([]any, error) {
			return []any{cluster, secret[i], texts[i], terms[i], more[i]}, nil
		}))
		if err != nil {
			return fmt.Errorf("storing words: %w", err)
		}
		return nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+e.table("tokens")+` AS t (cluster, secret, token, term, n)
		SELECT $1, * FROM unnest($2::boolean[], $3::text[], $4::bigint[], $5::bigint[])
		ON CONFLICT (term, cluster, secret) DO UPDATE SET n = t.n + excluded.n`, cluster, secret, texts, terms, more)
	if err != nil {
		return fmt.Errorf("storing words: %w", err)
	}
	if len(fewer) > 0 {
		_, err := tx.Exec(ctx, "DELETE FROM "+e.table("tokens")+" WHERE cluster = $1 AND term = ANY($2) AND n <= 0", cluster, fewer)
		if err != nil {
			return fmt.Errorf("removing words: %w", err)
		}
	}
	return nil
}

// keywordCondition holds for resources that contain a keyword, and those of clusters whose
// names do.
type keywordCondition struct {
	// terms are such that a resource must have one of each; none if too many would do.
	terms [][]int64
	// pattern is what the words must be like; empty if the terms say it all.
	pattern  string
	clusters []int32
}

// addKeyword looks up which tokens the parts of a keyword may be of.
func (c *condition) addKeyword(ctx context.Context, v *view, keyword string) error {
	keyword = lowerASCII(escape(keyword))
	one := keywordCondition{pattern: "%" + likeText.Replace(keyword) + "%"}
	for i := range c.selection.clusters {
		if strings.Contains(lowerASCII(escape(c.selection.clusters[i].name)), keyword) {
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
		if len(terms) > mostTerms {
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

// tokens are the terms of tokens like a pattern, and whether there are long ones, whose term is
// among them. There may be more than mostTerms.
func (v *view) tokens(ctx context.Context, c *condition, pattern string) (terms []int64, long bool, err error) {
	b := c.builder()
	table := v.engine.table("tokens")
	of := ""
	if len(c.selection.clusters) < c.clusters {
		of = " AND cluster = ANY(" + b.arg(c.selection.clusterIDs()) + "::integer[])"
	}
	statement := fmt.Sprintf("(SELECT DISTINCT term, false FROM %[1]s WHERE token LIKE %[2]s%[3]s LIMIT %[4]d)"+
		" UNION ALL (SELECT term, true FROM %[1]s WHERE term = %[5]s%[3]s LIMIT 1)",
		table, b.arg(pattern), of, mostTerms+1, b.arg(v.engine.hash.sum(hashToken, anyLong)))
	rows, err := v.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return nil, false, err
	}
	var term int64
	var isLong bool
	_, err = pgx.ForEachRow(rows, []any{&term, &isLong}, func() error {
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
