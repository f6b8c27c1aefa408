package search

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

const (
	completionTimeout = 3 * time.Second
	completionLimit   = 100
)

// complete completes properties and values. Values with a colon need a shell that does not split words at colons.
func (s *searching) complete(command *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	clients, err := s.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	terms := searchv1alpha1.SearchTerms{Query: query(args)}
	end := strings.IndexAny(word, ":=<>!")
	if end < 0 {
		schema, err := clients.OCM.SearchV1alpha1().SearchSchemas().Create(ctx, &searchv1alpha1.SearchSchema{Spec: terms}, metav1.CreateOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, property := range schema.Status.Properties {
			if strings.HasPrefix(property.Name, word) {
				out = append(out, property.Name+":")
			}
		}
		return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	// The completed value begins after the last operator and comma.
	begin := end + len(word[end:]) - len(strings.TrimLeft(word[end:], ":=<>!"))
	if comma := strings.LastIndexByte(word, ','); comma >= begin {
		begin = comma + 1
	}
	values, err := clients.OCM.SearchV1alpha1().SearchCompletions().Create(ctx, &searchv1alpha1.SearchCompletion{
		Spec: searchv1alpha1.SearchCompletionSpec{SearchTerms: terms, Property: word[:end], Prefix: word[begin:], Limit: ptr.To[int32](completionLimit)},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, value := range values.Status.Values {
		text := value.Value
		if cli.Printable(text) != text {
			// Control characters in a completion would split it or change the terminal.
			continue
		}
		if text == "" || strings.ContainsAny(text, " \t,*\"'\\") {
			text = quote(text)
		}
		out = append(out, word[:begin]+text)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
