package postgres

import "context"

// completeNames counts names in the database, in order and up to the limit. It reads the resources whose names are not
// plain texts: numbers come before other names, and the order of times may depend on all names.
func (c *condition) completeNames(ctx context.Context, v *view, gathered *values, limit int) error {
	others := func(b *builder) string { return c.selection.condition(b) + " AND r.name_key IS NOT NULL" }
	err := c.each(ctx, v, others, func(one *found) error {
		var kept columns
		kept.nameColumns(one.properties)
		if kept.name == nil || !plainText(unescape(*kept.name)) {
			gathered.addResource(one.properties)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The index of names contains the names that were read above as well.
	most := int64(limit) + 1 + int64(len(gathered.counts))
	b := c.builder()
	classes := c.selection.condition
	var without []string
	if limit >= 0 && c.exact() {
		classes, without = c.selection.indexed, inOrder
	}
	statement := "SELECT r.name, count(*) FROM " + table("resources") + " r WHERE " + c.where(b, classes(b)) + " AND r.name IS NOT NULL"
	if gathered.prefix != "" {
		statement += " AND lower(r.name) LIKE " + b.arg(likeText.Replace(escape(gathered.prefix))+"%")
	}
	statement += " GROUP BY r.name"
	if limit >= 0 {
		statement += " ORDER BY r.name LIMIT " + b.arg(most)
	}
	var name string
	var count int
	return v.rowsWithout(ctx, without, statement, b.args, []any{&name, &count}, func() error {
		if name = unescape(name); plainText(name) {
			gathered.add(name, count)
		}
		return nil
	})
}
