package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// plainName reports whether the order of completions for a name equals the order of its column.
// Numbers come before other names, and the order of times may depend on all names.
func plainName(name string) bool { return orderKey(name)[0] == textRank }

// completeNames counts names in the database, in order and up to the limit. It reads the resources
// whose names are not plain texts.
func (c *condition) completeNames(ctx context.Context, v *view, gathered *values, limit int) error {
	others := func(b *builder) string { return c.selection.condition(b) + " AND r.name_key IS NOT NULL" }
	err := c.each(ctx, v, others, func(r *row) error {
		var kept columns
		kept.nameColumns(r.properties)
		if kept.name == nil || !plainName(unescape(*kept.name)) {
			gathered.addResource(r.properties)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The result includes the names that were read above, because they are not plain.
	names, err := v.countedNames(ctx, c, gathered.prefix, limit)
	if err != nil {
		return err
	}
	for _, name := range names {
		if plainName(name.text) {
			gathered.add(name.text, name.count)
		}
	}
	return nil
}

type countedName struct {
	text  string
	count int
}

// countedNames returns the names with a prefix in order, with their counts. It returns all names,
// or one more plain name than the limit. If classes alone determine the matches, it requires only
// the index of names.
func (v *view) countedNames(ctx context.Context, c *condition, prefix string, limit int) ([]countedName, error) {
	if limit < 0 {
		return v.namesAfter(ctx, c, prefix, nil, -1)
	}
	var names []countedName
	for plain, wanted := 0, limit+1; plain < wanted; {
		var after *string
		if len(names) > 0 {
			after = &names[len(names)-1].text
		}
		more, err := v.namesAfter(ctx, c, prefix, after, wanted)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
		for _, name := range more {
			if plainName(name.text) {
				plain++
			}
		}
		if len(more) < wanted {
			break
		}
	}
	return names, nil
}

func (v *view) namesAfter(ctx context.Context, c *condition, prefix string, after *string, limit int) ([]countedName, error) {
	b := c.builder()
	classes := c.selection.condition
	walked := limit >= 0 && c.exact()
	if walked {
		classes = c.selection.indexed
	}
	where := c.where(b, classes(b)) + " AND r.name IS NOT NULL"
	if prefix != "" {
		where += " AND lower(r.name) LIKE " + b.arg(likeText.Replace(escape(prefix))+"%")
	}
	if after != nil {
		where += " AND r.name > " + b.arg(escape(*after))
	}
	statement := "SELECT r.name, count(*) FROM " + v.engine.table("resources") + " r WHERE " + where + " GROUP BY r.name"
	if limit >= 0 {
		statement += " ORDER BY r.name LIMIT " + b.arg(int64(limit))
	}
	var names []countedName
	read := func(rows pgx.Rows) error {
		var one countedName
		_, err := pgx.ForEachRow(rows, []any{&one.text, &one.count}, func() error {
			one.text = unescape(one.text)
			names = append(names, one)
			return nil
		})
		return err
	}
	if walked {
		err := v.queryWithout(ctx, inOrder, statement, b.args, read)
		return names, err
	}
	rows, err := v.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return nil, err
	}
	err = read(rows)
	return names, err
}
