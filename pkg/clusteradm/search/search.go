// Package search contains the command that searches the fleet.
package search

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

const searchExample = `  # Pods of two namespaces that are not running, in all clusters
  clusteradm search kind:Pod namespace:a,b 'status!=Running'

  # Resources with the label app=web that contain nginx in any property, most restarts first
  clusteradm search label:app=web nginx --order-by 'restarts desc'

  # Deployments and everything that is related to them
  clusteradm search kind:Deployment name:web --related`

type searching struct {
	cli.Environment

	output  string
	limit   int32
	orderBy []string
	related bool
	count   bool
}

// New returns the command clusteradm search.
func New(env cli.Environment) *cobra.Command {
	s := &searching{Environment: env, output: cli.OutputTable, limit: 1000}
	timeout := time.Minute
	command := &cobra.Command{
		Use:   "search QUERY...",
		Short: "Find resources of the hub and of all managed clusters",
		Long: `Find resources that you may list on the hub, and resources of the managed clusters that
you may view.

A word of a query is a keyword, or a property and a value with an operator between them:
: or =, !=, >, >=, < or <=. Several values are separated by commas, * is a wildcard, and quotes
make a value literal. Properties and values are completed in the shell.`,
		Example:           searchExample,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: s.complete,
		RunE:              cli.Within(&timeout, s.run),
	}
	flags := command.Flags()
	flags.StringVarP(&s.output, "output", "o", s.output, "Output format: table, json or name.")
	flags.Int32Var(&s.limit, "limit", s.limit, "Maximum number of resources. -1 shows all.")
	flags.StringArrayVar(&s.orderBy, "order-by", nil, `Property to order by, optionally followed by " desc". Can be repeated.`)
	flags.BoolVar(&s.related, "related", false, "Show related resources, too.")
	flags.BoolVar(&s.count, "count", false, "Show only the number of resources.")
	command.MarkFlagsMutuallyExclusive("related", "count")
	return command
}

// query returns the text of a query. It quotes an argument with spaces, as the shell has removed its quotes.
func query(args []string) string {
	words := slices.Clone(args)
	for i, word := range words {
		if strings.ContainsAny(word, " \t") && !strings.ContainsAny(word, `:=<>"'`) {
			words[i] = quote(word)
		}
	}
	return strings.Join(words, " ")
}

func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

func (s *searching) run(ctx context.Context, args []string) error {
	if err := cli.OneOf("output", s.output, cli.OutputTable, cli.OutputJSON, cli.OutputName); err != nil {
		return err
	}
	clients, err := s.Connect()
	if err != nil {
		return err
	}
	search := &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
		SearchTerms: searchv1alpha1.SearchTerms{Query: query(args)}, OrderBy: s.orderBy, Limit: ptr.To(s.limit),
	}}}
	switch {
	case s.count:
		search.Spec.Output = searchv1alpha1.OutputCount
	case s.related:
		search.Spec.Output = searchv1alpha1.OutputRelated
	}
	found, err := clients.OCM.SearchV1alpha1().Searches().Create(ctx, search, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, warning := range found.Status.Warnings {
		s.Warn("%s", warning)
	}
	switch {
	case s.output == cli.OutputJSON:
		return s.WriteJSON(found.Status)
	case s.count:
		_, err := fmt.Fprintln(s.Out, found.Status.Count)
		return err
	case s.output == cli.OutputName:
		return s.names(&found.Status.SearchResult)
	}
	return s.table(&found.Status.SearchResult)
}

// columns are the columns of a table. The first four order resources without --order-by.
var columns = []string{"CLUSTER", "KIND", "NAMESPACE", "NAME", "STATUS", "AGE"}

// ordering returns the properties of --order-by that have no column.
func (s *searching) ordering() []string {
	var names []string
	for _, order := range s.orderBy {
		name, _, _ := strings.Cut(strings.TrimSpace(order), " ")
		if name != "created" && !slices.Contains(columns, strings.ToUpper(name)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// row returns the values of a resource in the columns, and then of the named properties.
func row(item *searchv1alpha1.SearchItem, names []string) ([]string, error) {
	var properties map[string]any
	if err := json.Unmarshal(item.Properties.Raw, &properties); err != nil {
		return nil, fmt.Errorf("properties of %s: %w", item.UID, err)
	}
	text := func(name string) string {
		if value, is := properties[name].(string); is || properties[name] == nil {
			return value
		}
		encoded, _ := json.Marshal(properties[name])
		return string(encoded)
	}
	age := "<unknown>"
	if created, err := time.Parse(time.RFC3339, text("created")); err == nil {
		age = duration.HumanDuration(time.Since(created))
	}
	cells := []string{item.Cluster, text("kind"), text("namespace"), text("name"), text("status"), age}
	for _, name := range names {
		cells = append(cells, text(name))
	}
	return cells, nil
}

// shown returns the resources found and then, by kind, the resources related to them.
func (s *searching) shown(result *searchv1alpha1.SearchResult) ([][]string, error) {
	lists := [][]searchv1alpha1.SearchItem{result.Items}
	for i := range result.Related {
		lists = append(lists, result.Related[i].Items)
	}
	var all [][]string
	for _, items := range lists {
		first := len(all)
		for i := range items {
			cells, err := row(&items[i], s.ordering())
			if err != nil {
				return nil, err
			}
			all = append(all, cells)
		}
		if len(s.orderBy) == 0 {
			slices.SortStableFunc(all[first:], func(a, b []string) int { return slices.Compare(a[:4], b[:4]) })
		}
	}
	return all, nil
}

func (s *searching) table(result *searchv1alpha1.SearchResult) error {
	if result.Count == 0 {
		_, err := fmt.Fprintln(s.ErrOut, "No resources found")
		return err
	}
	all, err := s.shown(result)
	if err != nil {
		return err
	}
	header := strings.Join(append(slices.Clone(columns), s.ordering()...), " ")
	table := s.NewTable(strings.Fields(strings.ToUpper(header))...)
	for _, cells := range all {
		table.Row(cells...)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if shown := int64(len(result.Items)); shown < result.Count {
		_, err = fmt.Fprintf(s.ErrOut, "%d of %d resources; --limit shows more\n", shown, result.Count)
	}
	return err
}

// names prints one line per resource: cluster, namespace if it has one, kind and name.
func (s *searching) names(result *searchv1alpha1.SearchResult) error {
	all, err := s.shown(result)
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, cells := range all {
		cluster, kind, namespace, name := cells[0], cells[1], cells[2], cells[3]
		if namespace != "" {
			namespace += "/"
		}
		names[i] = cluster + "/" + namespace + strings.ToLower(kind) + "/" + name
	}
	return s.WriteLines(names)
}
