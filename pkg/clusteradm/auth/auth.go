// Package auth contains the command that shows who may do what on the clusters of the fleet.
package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// authPage is the number of entries of one request.
const authPage = 500

var (
	// authVerbs are the verbs that are completed.
	authVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "approve"}
	// authResources are the resources that are completed. They are known even if the hub does not serve them.
	authResources = []string{
		"pods", "pods/log", "pods/exec", "services", "secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "namespaces", "nodes", "nodes/proxy",
		"deployments.apps", "daemonsets.apps", "statefulsets.apps", "jobs.batch", "cronjobs.batch",
		"roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	}
	// explained are the kinds of subjects of explain.
	explained = []string{"user", "group", "serviceaccount"}
)

type asking struct {
	cli.Environment
	*cli.Clients

	output      string
	clusters    string
	sets, names []string
	all         bool
	subject     string
	groups      []string
	escalations bool
	limit       int
}

// New returns the command clusteradm auth.
func New(env cli.Environment) *cobra.Command {
	return cli.Group("auth", "Show who may do what on the clusters of the fleet", `Show who may do what on the clusters of the fleet, and why: the binding, its role and the rule.
The answers cover the clusters that you may view.`, newCanI(env), newWhoCan(env), newExplain(env))
}

func (a *asking) flags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVarP(&a.output, "output", "o", cli.OutputTable, "Output format: table, json or name.")
	flags.StringVar(&a.clusters, "clusters", "", "Label selector of the clusters, for example env=prod. The default is all clusters that you may view.")
	flags.StringSliceVar(&a.names, "cluster", nil, "Name of a cluster. Can be repeated.")
	flags.StringSliceVar(&a.sets, "clusterset", nil, "ManagedClusterSet of the clusters. Can be repeated.")
	flags.IntVar(&a.limit, "limit", 1000, "Maximum number of clusters or subjects in the output.")
	for name, complete := range map[string]cobra.CompletionFunc{
		"output":     cobra.FixedCompletions([]string{cli.OutputTable, cli.OutputJSON, cli.OutputName}, cobra.ShellCompDirectiveNoFileComp),
		"cluster":    a.completeNames(clusterv1.SchemeGroupVersion.WithResource("managedclusters")),
		"clusterset": a.completeNames(clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersets")),
		"clusters":   cobra.NoFileCompletions,
		"limit":      cobra.NoFileCompletions,
	} {
		// It fails only for a flag that does not exist.
		_ = command.RegisterFlagCompletionFunc(name, complete)
	}
}

func newCanI(env cli.Environment) *cobra.Command {
	a := &asking{Environment: env}
	command := &cobra.Command{
		Use:   "can-i VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME] | VERB /PATH",
		Short: "Show on which clusters you or another user may do something",
		Example: `  # On which production clusters may I delete Secrets in the namespace prod?
  clusteradm auth can-i delete secrets -n prod --clusters env=prod

  # On which clusters may alice delete Secrets in all namespaces?
  clusteradm auth can-i delete secrets -A --subject alice

  # May paul, with his group, restart Deployments? Deployments are in the group apps.
  clusteradm auth can-i patch deployments.apps -n payments --subject paul --group payments`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: completeWords(authVerbs, authResources),
		RunE:              a.run(a.canI),
	}
	a.flags(command)
	command.Flags().StringVar(&a.subject, "subject", "", "User or ServiceAccount, for example alice or system:serviceaccount:ops:cleaner. The default is yourself.")
	command.Flags().StringArrayVar(&a.groups, "group", nil, "Group of the subject. Can be repeated.")
	command.Flags().BoolVarP(&a.all, "all-namespaces", "A", false, "Ask for all namespaces.")
	return command
}

func newWhoCan(env cli.Environment) *cobra.Command {
	a := &asking{Environment: env}
	command := &cobra.Command{
		Use:   "who-can VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME] | VERB /PATH",
		Short: "Show who may do something, and on which clusters",
		Example: `  # Who may read Secrets of the namespace prod on cluster1, or can gain the permission?
  clusteradm auth who-can get secrets -n prod --cluster cluster1 --escalations`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: completeWords(authVerbs, authResources),
		RunE:              a.run(a.whoCan),
	}
	a.flags(command)
	command.Flags().BoolVarP(&a.all, "all-namespaces", "A", false, "Ask for all namespaces.")
	command.Flags().BoolVar(&a.escalations, "escalations", false, "Show who can gain the permission, too.")
	return command
}

func newExplain(env cli.Environment) *cobra.Command {
	a := &asking{Environment: env}
	command := &cobra.Command{
		Use:   "explain user|group|serviceaccount NAME",
		Short: "Show everything that a user, group or ServiceAccount holds, by cluster",
		Example: `  clusteradm auth explain user alice
  clusteradm auth explain serviceaccount cluster1/ops/cleaner`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeWords(explained),
		RunE:              a.run(a.explain),
	}
	a.flags(command)
	command.Flags().StringArrayVar(&a.groups, "group", nil, "Group of the user. Can be repeated.")
	return command
}

// completeWords returns a function that completes each argument from its list.
func completeWords(lists ...[]string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) < len(lists) {
			return lists[len(args)], cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *asking) completeNames(resource schema.GroupVersionResource) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		clients, err := a.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(command.Context(), 3*time.Second)
		defer cancel()
		list, err := clients.Dynamic.Resource(resource).List(ctx, metav1.ListOptions{Limit: authPage})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// run returns the function of a command that calls do after the checks of the flags.
func (a *asking) run(do func(context.Context, []string) error) func(*cobra.Command, []string) error {
	timeout := time.Minute
	return cli.Within(&timeout, func(ctx context.Context, args []string) error {
		if err := cli.OneOf("output", a.output, cli.OutputTable, cli.OutputJSON, cli.OutputName); err != nil {
			return err
		}
		if a.limit < 1 {
			return fmt.Errorf("--limit must be at least 1, not %d", a.limit)
		}
		for _, group := range a.groups {
			if validate.LooksLikeList(group) {
				a.Warn("--group %q is one group: repeat the flag for each group.", group)
			}
		}
		var err error
		if a.Clients, err = a.Connect(); err != nil {
			return err
		}
		return do(ctx, args)
	})
}

func (a *asking) selection() (accessv1alpha1.ClusterSelection, error) {
	selection := accessv1alpha1.ClusterSelection{Names: a.names, ClusterSets: a.sets}
	if a.clusters != "" {
		selector, err := metav1.ParseToLabelSelector(a.clusters)
		if err != nil {
			return selection, fmt.Errorf("--clusters: %w", err)
		}
		selection.LabelSelector = selector
	}
	return selection, nil
}

// request returns the request that the arguments of can-i and who-can describe, and the selected clusters.
func (a *asking) request(args []string) (request accessv1alpha1.AccessRequest, clusters accessv1alpha1.ClusterSelection, err error) {
	if clusters, err = a.selection(); err != nil {
		return request, clusters, err
	}
	if strings.HasPrefix(args[1], "/") {
		request.NonResourceAttributes = &accessv1alpha1.NonResourceAttributes{Verb: args[0], Path: args[1]}
		return request, clusters, nil
	}
	word, subresource, _ := strings.Cut(args[1], "/")
	found := a.resource(args[0], strings.ToLower(word))
	attributes := &accessv1alpha1.ResourceAttributes{Verb: args[0], Group: found.Group, Resource: found.Resource, Subresource: subresource}
	if len(args) > 2 {
		attributes.Name = args[2]
	}
	namespace, given, err := a.ToRawKubeConfigLoader().Namespace() // of the flag, or of the context
	switch {
	case found == (schema.GroupResource{Resource: "namespaces"}) && !given:
		// A request for a Namespace is one in this Namespace.
		if attributes.Namespace = attributes.Name; attributes.Name == "" {
			a.remark("Note: the answer is about all Namespaces; a Role in a Namespace can allow a request for it: give its name, too")
		}
	case !a.all:
		if attributes.Namespace = namespace; !given {
			a.remark("Note: the answer is about the namespace %s; -n and -A select others", namespace)
		}
	}
	request.ResourceAttributes = attributes
	return request, clusters, err
}

// resource returns the resource that a word means to kubectl on the hub. Others may exist on managed clusters.
func (a *asking) resource(verb, word string) schema.GroupResource {
	if verb != "*" && !slices.Contains(authVerbs, verb) {
		a.Warn("the verb %q is unusual: check its spelling", verb)
	}
	typed := schema.ParseGroupResource(word)
	if typed.Resource == "*" || verb == "impersonate" && (word == "users" || word == "groups") {
		return typed
	}
	client := memory.NewMemCacheClient(a.Kube.Discovery())
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, nil)
	resource, err := mapper.ResourceFor(typed.WithVersion(""))
	found := resource.GroupResource()
	known := slices.IndexFunc(authResources, func(known string) bool { return known == word || strings.HasPrefix(known, word+".") })
	switch {
	case err == nil:
	case known >= 0:
		found = schema.ParseGroupResource(authResources[known])
	default:
		found = typed
		a.Warn("the hub serves no resource %s of the group %q: check the names, unless only managed clusters serve it", typed.Resource, typed.Group)
	}
	if found != typed {
		a.remark("Note: the answer is about the resource %s of the group %q", found.Resource, found.Group)
	}
	return found
}

// remark prints a line about the answer.
func (a *asking) remark(format string, args ...any) {
	_, _ = fmt.Fprintf(a.ErrOut, format+"\n", args...)
}

func (a *asking) canI(ctx context.Context, args []string) error {
	request, clusters, err := a.request(args)
	if err != nil {
		return err
	}
	spec := accessv1alpha1.FleetAccessReviewSpec{User: a.subject, Groups: a.groups, AccessRequest: request, Clusters: clusters}
	answer, err := a.review(ctx, spec, a.subject == "" && len(a.groups) == 0, a.decisions)
	if err == nil && answer.Allowed == 0 {
		// The exit code is 1, as that of kubectl auth can-i.
		err = errors.New("no selected cluster allows the request, as far as the hub knows")
	}
	return err
}

func (a *asking) explain(ctx context.Context, args []string) error {
	clusters, err := a.selection()
	if err != nil {
		return err
	}
	spec := accessv1alpha1.FleetAccessReviewSpec{Groups: a.groups, Clusters: clusters}
	switch args[0] {
	case "user":
		spec.User = args[1]
	case "group":
		spec.Groups = append(spec.Groups, args[1])
	case "serviceaccount":
		parts := strings.Split(args[1], "/")
		switch {
		case len(parts) == 3 && len(a.groups) == 0:
			spec.ServiceAccount = &accessv1alpha1.ClusterServiceAccount{Cluster: parts[0], Namespace: parts[1], Name: parts[2]}
			a.names = append(a.names, parts[0])
		case len(parts) == 2:
			spec.User = serviceaccount.MakeUsername(parts[0], parts[1])
		default:
			return fmt.Errorf("invalid ServiceAccount %q: use CLUSTER/NAMESPACE/NAME, or NAMESPACE/NAME for all clusters", args[1])
		}
	default:
		return fmt.Errorf("cannot explain %q: use one of %s", args[0], strings.Join(explained, ", "))
	}
	_, err = a.review(ctx, spec, false, a.holdings)
	return err
}

// review joins the pages of a review of a subject, or of the caller for self, shows them and returns them.
func (a *asking) review(ctx context.Context, spec accessv1alpha1.FleetAccessReviewSpec, self bool, show func(*accessv1alpha1.FleetAccessReviewStatus) error) (*accessv1alpha1.FleetAccessReviewStatus, error) {
	all := &accessv1alpha1.FleetAccessReviewStatus{}
	for {
		spec.Page = a.page(len(all.Clusters), all.Continue)
		status, err := a.send(ctx, spec, self)
		if err != nil {
			return nil, err
		}
		status.Clusters = slices.Concat(all.Clusters, status.Clusters)
		if all = status; all.Continue == "" || len(all.Clusters) >= a.limit {
			break
		}
	}
	if len(all.Clusters) == 0 {
		return nil, a.selectsNothing(ctx)
	}
	if spec.User != "" && len(spec.Groups) == 0 && !strings.HasPrefix(spec.User, serviceaccount.ServiceAccountUsernamePrefix) && (all.Denied > 0 || all.Allowed == 0) {
		a.remark("Note: the hub does not know the groups of %s: name each with --group", spec.User)
	}
	if a.output == cli.OutputJSON {
		return all, a.WriteJSON(all)
	}
	err := show(all)
	a.omitted(all.RemainingItemCount, "clusters")
	return all, err
}

// selectsNothing returns the error of an answer about no cluster: the flags, or the permissions of the caller, exclude all.
func (a *asking) selectsNothing(ctx context.Context) error {
	some := accessv1alpha1.AccessRequest{NonResourceAttributes: &accessv1alpha1.NonResourceAttributes{Verb: "get", Path: "/"}}
	viewed, err := a.send(ctx, accessv1alpha1.FleetAccessReviewSpec{AccessRequest: some}, true)
	if err == nil && len(viewed.Clusters) == 0 {
		err = errors.New("you may view no cluster: the ClusterRole open-cluster-management:search:view-cluster, bound in the namespace of a cluster, allows it")
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("no cluster that you may view matches --cluster=%s --clusterset=%s --clusters=%s", strings.Join(a.names, ","), strings.Join(a.sets, ","), a.clusters)
}

// page returns the page of a review that follows a number of entries.
func (a *asking) page(entries int, after string) accessv1alpha1.Page {
	return accessv1alpha1.Page{Limit: ptr.To(int32(min(authPage, a.limit-entries))), Continue: after}
}

func (a *asking) send(ctx context.Context, spec accessv1alpha1.FleetAccessReviewSpec, self bool) (*accessv1alpha1.FleetAccessReviewStatus, error) {
	if self {
		review := &accessv1alpha1.SelfFleetAccessReview{Spec: accessv1alpha1.SelfFleetAccessReviewSpec{AccessRequest: spec.AccessRequest, Page: spec.Page, Clusters: spec.Clusters}}
		got, err := a.OCM.AccessV1alpha1().SelfFleetAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return &got.Status, err
	}
	got, err := a.OCM.AccessV1alpha1().FleetAccessReviews().Create(ctx, &accessv1alpha1.FleetAccessReview{Spec: spec}, metav1.CreateOptions{})
	return &got.Status, err
}

func (a *asking) omitted(remaining *int64, what string) {
	if remaining != nil {
		a.remark("%d more %s; --limit shows more", *remaining, what)
	}
}

// decisions shows a review with attributes. The names are those of the clusters that allow the request.
func (a *asking) decisions(status *accessv1alpha1.FleetAccessReviewStatus) error {
	if a.output == cli.OutputName {
		return a.clusterNames(status, func(c *accessv1alpha1.ClusterAccess) bool { return c.Decision == accessv1alpha1.AccessAllowed })
	}
	table := a.NewTable("CLUSTER", "DECISION", "BINDING", "ROLE", "CLUSTERPERMISSION", "REASON")
	for i := range status.Clusters {
		c := &status.Clusters[i]
		binding, role, permission := "", "", ""
		if len(c.Chains) > 0 {
			binding, role, permission = referenceText(c.Chains[0].Binding), referenceText(c.Chains[0].Role), c.Chains[0].ClusterPermission
		}
		table.Row(c.Cluster, string(c.Decision), binding, role, permission, c.Reason)
	}
	err := table.Flush()
	a.remark("%d allowed, %d denied, %d unknown", status.Allowed, status.Denied, status.Unknown)
	return err
}

func (a *asking) clusterNames(status *accessv1alpha1.FleetAccessReviewStatus, selected func(*accessv1alpha1.ClusterAccess) bool) error {
	var names []string
	for i := range status.Clusters {
		if c := &status.Clusters[i]; selected(c) {
			names = append(names, c.Cluster)
		}
	}
	return a.WriteLines(names)
}

// holdings shows what a subject holds. The names are those of the clusters on which it holds anything.
func (a *asking) holdings(status *accessv1alpha1.FleetAccessReviewStatus) error {
	if a.output == cli.OutputName {
		return a.clusterNames(status, func(c *accessv1alpha1.ClusterAccess) bool { return len(c.Holdings) > 0 })
	}
	table := a.NewTable("CLUSTER", "BINDING", "ROLE", "AS", "CLUSTERPERMISSION", "ESCALATIONS", "REASON")
	for i := range status.Clusters {
		c := &status.Clusters[i]
		if c.Reason != "" {
			table.Row(c.Cluster, "", "", "", "", "", strings.TrimSpace(string(c.Decision)+" "+c.Reason))
		}
		for j := range c.Holdings {
			h := &c.Holdings[j]
			role := referenceText(h.Role)
			if h.Missing {
				role += " (missing)"
			}
			table.Row(c.Cluster, referenceText(h.Binding), role, subjectText(h.Subject), h.ClusterPermission, strings.Join(h.Escalations, ","), "")
		}
	}
	return table.Flush()
}

func (a *asking) whoCan(ctx context.Context, args []string) error {
	request, clusters, err := a.request(args)
	if err != nil {
		return err
	}
	spec := accessv1alpha1.FleetSubjectReviewSpec{AccessRequest: request, Clusters: clusters, Escalations: a.escalations}
	all := &accessv1alpha1.FleetSubjectReviewStatus{}
	for {
		spec.Page = a.page(len(all.Subjects), all.Continue)
		page, err := a.OCM.AccessV1alpha1().FleetSubjectReviews().Create(ctx, &accessv1alpha1.FleetSubjectReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		page.Status.Subjects = slices.Concat(all.Subjects, page.Status.Subjects)
		if all = &page.Status; all.Continue == "" || len(all.Subjects) >= a.limit {
			break
		}
	}
	for _, note := range all.Notes {
		a.remark("Note: %s", note)
	}
	if all.Unknown > 0 {
		a.remark("Note: the hub does not know the permissions on %d clusters", all.Unknown)
	}
	if len(all.Subjects) == 0 && all.Unknown == 0 {
		// Every known cluster has the subject system:masters.
		return a.selectsNothing(ctx)
	}
	if a.output == cli.OutputJSON {
		return a.WriteJSON(all)
	}
	err = a.subjects(all.Subjects)
	a.omitted(all.RemainingItemCount, "subjects")
	return err
}

func (a *asking) subjects(subjects []accessv1alpha1.SubjectAccess) error {
	if a.output == cli.OutputName {
		var names []string
		for i := range subjects {
			names = append(names, subjectText(subjects[i].AccessSubject))
		}
		return a.WriteLines(names)
	}
	table := a.NewTable("SUBJECT", "BY", "CLUSTERS", "BINDING", "ROLE", "CLUSTERPERMISSION")
	for i := range subjects {
		s := &subjects[i]
		if s.Reason != "" {
			table.Row(subjectText(s.AccessSubject), s.Reason, "", "", "", "")
		}
		for j := range s.Grants {
			addGrant(table, s, "Binding", &s.Grants[j])
		}
		for j := range s.Escalations {
			addGrant(table, s, s.Escalations[j].Type, &s.Escalations[j].AccessGrant)
		}
	}
	return table.Flush()
}

func addGrant(table cli.Table, s *accessv1alpha1.SubjectAccess, by string, g *accessv1alpha1.AccessGrant) {
	const shown = 3
	clusters := strings.Join(g.Clusters[:min(shown, len(g.Clusters))], ",")
	if g.ClusterCount > shown {
		clusters += fmt.Sprintf(" and %d more", g.ClusterCount-shown)
	}
	table.Row(subjectText(s.AccessSubject), by, clusters, referenceText(g.Binding), referenceText(g.Role), g.ClusterPermission)
}

// referenceText returns a role or a binding as kubectl names it.
func referenceText(r accessv1alpha1.RBACReference) string {
	text := strings.ToLower(r.Kind) + "/" + r.Name
	if r.Namespace != "" {
		text += " -n " + r.Namespace
	}
	return text
}

func subjectText(s accessv1alpha1.AccessSubject) string {
	if s.Namespace != "" {
		s.Name = s.Namespace + "/" + s.Name
	}
	return strings.ToLower(s.Kind) + "/" + s.Name
}
