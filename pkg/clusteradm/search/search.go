package clusteradm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	outputTable = "table"
	outputJSON  = "json"
	outputName  = "name"

	searchTimeout = time.Minute
)

const searchExample = `  # The Pods of two namespaces that do not run, in all clusters
  clusteradm search kind:Pod namespace:a,b 'status!=Running'

  # What is labelled app=web and contains nginx in any property, the restless first
  clusteradm search label:app=web nginx --order-by 'restarts desc'

  # Deployments and everything that is related to them
  clusteradm search kind:Deployment name:web --related`

// searching is the command clusteradm search.
type searching struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	output  string
	limit   int32
	orderBy []string
	related bool
	count   bool
}

func newSearch(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	s := &searching{access: access, streams: streams, output: outputTable, limit: 1000}
	command := &cobra.Command{
		Use:   "search QUERY...",
		Short: "Find resources of the hub and of all managed clusters",
		Long: `Find resources of the hub and of all managed clusters: those that you may list on the
hub, and those of the clusters that you may view.

A word of a query is a keyword, or a property and a value with an operator between them:
: or =, !=, >, >=, < or <=. Several values are separated by commas, * is a wildcard, and quotes
make a value literal. Properties and values are completed in the shell.`,
		Example:           searchExample,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: s.complete,
		RunE: func(command *cobra.Command, args []string) error {
			return s.run(command.Context(), query(args))
		},
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

// query returns the text of a query. The shell has removed the quotes around an argument
// with spaces, which must remain one word.
func query(args []string) string {
	words := make([]string, 0, len(args))
	for _, arg := range args {
		if !strings.ContainsAny(arg, " \t") || strings.ContainsAny(arg, `:=<>"'`) {
			words = append(words, arg)
			continue
		}
		words = append(words, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(arg)+`"`)
	}
	return strings.Join(words, " ")
}

func (s *searching) client() (versioned.Interface, error) {
	config, err := s.access.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return versioned.NewForConfig(config)
}

func (s *searching) run(ctx context.Context, text string) error {
	if s.output != outputTable && s.output != outputJSON && s.output != outputName {
		return fmt.Errorf("--output must be %s, %s or %s, not %q", outputTable, outputJSON, outputName, s.output)
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	search := &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
		SearchTerms: searchv1alpha1.SearchTerms{Query: text}, OrderBy: s.orderBy, Limit: ptr.To(s.limit),
	}}}
	switch {
	case s.count:
		search.Spec.Output = searchv1alpha1.OutputCount
	case s.related:
		search.Spec.Output = searchv1alpha1.OutputRelated
	}
	found, err := client.SearchV1alpha1().Searches().Create(ctx, search, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, warning := range found.Status.Warnings {
		if _, err := fmt.Fprintf(s.streams.ErrOut, "Warning: %s\n", warning); err != nil {
			return err
		}
	}
	switch {
	case s.output == outputJSON:
		encoder := json.NewEncoder(s.streams.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(found.Status)
	case s.count:
		_, err := fmt.Fprintln(s.streams.Out, found.Status.Count)
		return err
	}
	show := s.table
	if s.output == outputName {
		show = s.names
	}
	return show(&found.Status.SearchResult)
}

// found is a row of the output.
type found struct {
	cluster, kind, namespace, name, status, age string
}

func newFound(item *searchv1alpha1.SearchItem) (*found, error) {
	var properties map[string]any
	if err := json.Unmarshal(item.Properties.Raw, &properties); err != nil {
		return nil, fmt.Errorf("properties of %s: %w", item.UID, err)
	}
	text := func(name string) string {
		value, _ := properties[name].(string)
		return value
	}
	out := &found{
		cluster: item.Cluster, kind: text("kind"), namespace: text("namespace"), name: text("name"), status: text("status"), age: "<unknown>",
	}
	if created, err := time.Parse(time.RFC3339, text("created")); err == nil {
		out.age = duration.HumanDuration(time.Since(created))
	}
	return out, nil
}

// shown returns the resources found and then, by kind, the resources related to them.
func (s *searching) shown(result *searchv1alpha1.SearchResult) ([]*found, error) {
	lists := [][]searchv1alpha1.SearchItem{result.Items}
	for i := range result.Related {
		lists = append(lists, result.Related[i].Items)
	}
	var all []*found
	for _, items := range lists {
		first := len(all)
		for i := range items {
			one, err := newFound(&items[i])
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
		if len(s.orderBy) == 0 {
			slices.SortStableFunc(all[first:], compareFound)
		}
	}
	return all, nil
}

func compareFound(a, b *found) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.kind, b.kind),
		strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

func (s *searching) table(result *searchv1alpha1.SearchResult) error {
	if result.Count == 0 {
		_, err := fmt.Fprintln(s.streams.ErrOut, "No resources found")
		return err
	}
	w := printers.GetNewTabWriter(s.streams.Out)
	if err := row(w, "CLUSTER", "KIND", "NAMESPACE", "NAME", "STATUS", "AGE"); err != nil {
		return err
	}
	all, err := s.shown(result)
	if err != nil {
		return err
	}
	for _, f := range all {
		if err := row(w, f.cluster, f.kind, f.namespace, f.name, f.status, f.age); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if shown := int64(len(result.Items)); shown < result.Count {
		_, err = fmt.Fprintf(s.streams.ErrOut, "%d of %d resources; --limit shows more\n", shown, result.Count)
	}
	return err
}

func row(w io.Writer, cells ...string) error {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	_, err := fmt.Fprintln(w, strings.Join(cells, "\t"))
	return err
}

// printable returns a text on one line that cannot control a terminal, because reported
// text can be hostile.
func printable(text string) string {
	hidden := func(r rune) bool { return !unicode.IsGraphic(r) }
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			quoted := strconv.QuoteRuneToGraphic(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// names prints one line per resource: cluster, namespace if it has one, kind and name.
func (s *searching) names(result *searchv1alpha1.SearchResult) error {
	all, err := s.shown(result)
	if err != nil {
		return err
	}
	for _, f := range all {
		parts := []string{f.cluster}
		if f.namespace != "" {
			parts = append(parts, f.namespace)
		}
		if _, err := fmt.Fprintln(s.streams.Out, printable(strings.Join(append(parts, strings.ToLower(f.kind), f.name), "/"))); err != nil {
			return err
		}
	}
	return nil
}
