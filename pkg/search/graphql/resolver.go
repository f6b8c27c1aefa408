package graphql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	graphqlgo "github.com/graph-gophers/graphql-go"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// firstProperties are the first properties of every schema.
var firstProperties = []string{query.Cluster, query.Kind, query.Label, query.Name, query.Namespace, query.Status}

// maxClustersNamed bounds the clusters that a message names.
const maxClustersNamed = 10

// root resolves Query and Subscription.
type root struct {
	Config
	subscriptions *quota
}

// Search resolves search. Each input is one search, restricted to the selected fields.
func (r *root) Search(ctx context.Context, args struct{ Input *[]*searchInput }) (*[]*searchResult, error) {
	results := []*searchResult{}
	if args.Input == nil {
		return &results, nil
	}
	if len(*args.Input) > maxInputs {
		return nil, badRequest("input has more than %d elements", maxInputs)
	}
	lists, err := deferredFrom(ctx)
	if err != nil {
		return nil, err
	}
	scope, err := serving.Scope(ctx, r.Scopes)
	if err != nil {
		return nil, failed(err)
	}
	items := graphqlgo.HasSelectedField(ctx, "items")
	related := graphqlgo.HasSelectedField(ctx, "related")
	relatedItems := graphqlgo.HasSelectedField(ctx, "related.items")
	for i, input := range *args.Input {
		result, err := r.search(ctx, scope, input, items, related, relatedItems)
		if err != nil {
			return nil, failed(fmt.Errorf("input[%d]: %w", i, err))
		}
		if err := lists.addSearch(serving.CountItems(result)); err != nil {
			return nil, err
		}
		results = append(results, &searchResult{result: result, lists: lists})
	}
	return &results, nil
}

func (r *root) search(ctx context.Context, scope visibility.Scope, input *searchInput, items, related, relatedItems bool) (*search.Result, error) {
	request, err := input.request()
	if err != nil {
		return nil, err
	}
	request.Now = r.Now()
	// Related items are those of the items, even if the items are not selected.
	request.Items, request.Related, request.RelatedItems = items || relatedItems, related, relatedItems
	clusters := related && request.RelatesKind(clusterKind)
	result, err := r.Engine.Search(ctx, scope, request)
	if err != nil {
		return nil, serving.Error(ctx, err)
	}
	if clusters {
		if err := r.relateClusters(ctx, scope, request, result); err != nil {
			return nil, serving.Error(ctx, err)
		}
	}
	if related && onlyClusters(&request.Query) {
		if err := r.relateContents(ctx, scope, request, result); err != nil {
			return nil, serving.Error(ctx, err)
		}
	}
	return result, nil
}

// SearchComplete resolves searchComplete.
func (r *root) SearchComplete(ctx context.Context, args struct {
	Property string
	Query    *searchInput
	Limit    *int32
}) (*[]*string, error) {
	lists, err := deferredFrom(ctx)
	if err != nil {
		return nil, err
	}
	q, err := args.Query.query()
	if err != nil {
		return nil, err
	}
	if args.Property != "" {
		if message := serving.CheckProperty(args.Property); message != "" {
			return nil, badRequest("property: %s", message)
		}
	}
	scope, err := serving.Scope(ctx, r.Scopes)
	if err != nil {
		return nil, failed(err)
	}
	var values []string
	if args.Property != "" {
		completion, err := r.Engine.Complete(ctx, scope, &search.CompletionRequest{
			Property: args.Property, Query: q, Now: r.Now(), Limit: limit(args.Limit),
		})
		if err != nil {
			return nil, failed(serving.Error(ctx, err))
		}
		values = completed(completion)
	}
	place, err := lists.add(len(values), func(dst []byte, i int) []byte { return serving.AppendString(dst, values[i]) })
	if err != nil {
		return nil, err
	}
	return &[]*string{&place}, nil
}

// completed returns the values of a completion in the form that upstream clients expect.
func completed(completion *search.Completion) []string {
	switch {
	case len(completion.Values) == 0:
		return nil
	case completion.Numbers && completion.Min == completion.Max:
		return []string{"isNumber", completion.Min}
	case completion.Numbers:
		return []string{"isNumber", completion.Min, completion.Max}
	case completion.Times:
		return []string{"isDate"}
	}
	values := make([]string, len(completion.Values))
	for i := range completion.Values {
		values[i] = completion.Values[i].Value
	}
	return values
}

// SearchSchema resolves searchSchema.
func (r *root) SearchSchema(ctx context.Context, args struct{ Query *searchInput }) (*object, error) {
	q, err := args.Query.query()
	if err != nil {
		return nil, err
	}
	scope, err := serving.Scope(ctx, r.Scopes)
	if err != nil {
		return nil, failed(err)
	}
	properties, err := r.Engine.Schema(ctx, scope, &q, r.Now())
	if err != nil {
		return nil, failed(serving.Error(ctx, err))
	}
	names := slices.Clone(firstProperties)
	for i := range properties {
		if name := properties[i].Name; !slices.Contains(firstProperties, name) && !query.Hidden(name) {
			names = append(names, name)
		}
	}
	out := append([]byte{}, `{"allProperties":`...)
	return &object{json: append(appendTexts(out, names), '}')}, nil
}

// Messages resolves messages.
func (r *root) Messages(ctx context.Context) (*[]*message, error) {
	messages := []*message{}
	if r.Stale == nil {
		return &messages, nil
	}
	scope, err := serving.Scope(ctx, r.Scopes)
	if err != nil {
		return nil, failed(err)
	}
	stale, err := r.Stale(ctx)
	if err != nil {
		return nil, failed(serving.Error(ctx, err))
	}
	stale = slices.DeleteFunc(slices.Clone(stale), func(name string) bool { return !scope.Cluster(name) })
	if len(stale) == 0 {
		return &messages, nil
	}
	slices.Sort(stale)
	names := strings.Join(stale[:min(len(stale), maxClustersNamed)], ", ")
	if more := len(stale) - maxClustersNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	messages = append(messages, &message{
		// Upstream clients identify the message by this ID.
		ID: "S20", Kind: ptr.To("information"),
		Description: ptr.To("Search is off on some managed clusters, or they have not reported recently: " + names + "."),
	})
	return &messages, nil
}

// searchResult resolves SearchResult.
type searchResult struct {
	result *search.Result
	lists  *deferred
}

// Count resolves count.
func (s *searchResult) Count() *int32 { return count(s.result.Count) }

// Items resolves items.
func (s *searchResult) Items() (*[]*object, error) { return s.lists.deferItems(s.result.Items) }

// Related resolves related.
func (s *searchResult) Related() *[]*relatedResult {
	related := make([]*relatedResult, len(s.result.Related))
	for i := range s.result.Related {
		related[i] = &relatedResult{related: &s.result.Related[i], lists: s.lists}
	}
	return &related
}

// relatedResult resolves SearchRelatedResult.
type relatedResult struct {
	related *search.Related
	lists   *deferred
}

// Kind resolves kind.
func (s *relatedResult) Kind() string { return s.related.Kind }

// Count resolves count.
func (s *relatedResult) Count() *int32 { return count(s.related.Count) }

// Items resolves items.
func (s *relatedResult) Items() (*[]*object, error) { return s.lists.deferItems(s.related.Items) }

// deferItems adds a list of items and returns its representation.
func (d *deferred) deferItems(items []search.Item) (*[]*object, error) {
	place, err := d.add(len(items), func(dst []byte, i int) []byte { return appendItem(dst, &items[i]) })
	if err != nil {
		return nil, err
	}
	return &[]*object{{json: serving.AppendString(nil, place)}}, nil
}

// message is Message, whose fields the executor reads.
type message struct {
	ID                string
	Kind, Description *string
}
