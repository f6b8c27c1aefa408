package clusteradm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	clusterLease = "managed-cluster-lease"
	// silentLeases is the number of lease durations after which a cluster counts as silent, on the
	// hub and here.
	silentLeases = 5
	// settling is the time that a change may take before its delay is a finding.
	settling = 2 * time.Minute
	// The doctor inspects at most maxInspected objects of a kind, in pages.
	maxInspected, inspectedPage = 5000, 500
)

// hubDoctor is the command clusteradm doctor hub.
type hubDoctor struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	output, server string

	config *rest.Config
	kube   kubernetes.Interface
	ocm    versioned.Interface
	any    dynamic.Interface
}

func newDoctorHub(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) (*hubDoctor, *cobra.Command) {
	d := &hubDoctor{access: access, streams: streams, output: outputTable}
	command := &cobra.Command{
		Use:   "hub",
		Short: "Report problems of the hub and its clusters",
		Long: `Report problems of the hub: connections, certificates, clocks, permissions, storage, search, quotas, versions,
clusters and deliveries. The command prints one line for each subject: its state, the cause and what to do.
It exits with 1 if one is bad. It only reads. Without permission for a check, it prints Unknown and the
missing permission.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return d.run(command.Context()) },
	}
	d.addFlags(command)
	return d, command
}

func (d *hubDoctor) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVarP(&d.output, "output", "o", d.output, "Output format: table or json.")
	flags.StringVar(&d.server, "server-address", "", "Host and port of a server that runs outside of the hub. By default, the address in its Service of type ExternalName, or a port forward to one of its Pods.")
}

func (d *hubDoctor) run(ctx context.Context) error {
	if d.output != outputTable && d.output != outputJSON {
		return fmt.Errorf("--output must be %s or %s, not %q", outputTable, outputJSON, d.output)
	}
	var err error
	if d.config, err = d.access.ToRESTConfig(); err != nil {
		return err
	}
	d.config = impatient(d.config)
	if d.kube, err = kubernetes.NewForConfig(d.config); err != nil {
		return err
	}
	if d.ocm, err = versioned.NewForConfig(d.config); err != nil {
		return err
	}
	if d.any, err = dynamic.NewForConfig(d.config); err != nil {
		return err
	}
	findings, usable := connect(ctx, d.config, "hub API server")
	if usable {
		findings = append(findings, runChecks(ctx,
			d.apiServices, d.checkServer, d.serverPermissions, d.agentRoles, d.clusters, d.requests,
			d.works, d.clusterPermissions, d.search, d.migration,
		)...)
	}
	return printFindings(d.streams.Out, d.output, findings)
}

// apiServices checks the registration of the server with the aggregation layer.
func (d *hubDoctor) apiServices(ctx context.Context) []finding {
	const (
		subject    = "APIServices"
		renew      = renewCertificate + "; with cert-manager, check its Certificate and its cainjector"
		findServer = "start the server; see its Deployment and its log in " + hubNamespace
	)
	wanted, err := manifests("apiservice/*.yaml")
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	list, err := d.any.Resource(apiServices).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	found := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		found[list.Items[i].GetName()] = &list.Items[i]
	}
	names := map[finding][]string{} // by finding without subject
	add := func(f finding, name string) { names[f] = append(names[f], name) }
	ours := 0
	for _, object := range wanted {
		name := object.GetName()
		if object.GetKind() != kindAPIService {
			continue
		}
		service := found[name]
		if service == nil {
			add(bad("", "not registered", "run clusteradm init"), name)
			continue
		}
		target, _, _ := unstructured.NestedMap(service.Object, "spec", "service")
		if target["namespace"] != hubNamespace || target["name"] != serverName {
			add(healthy("", "served by the hub itself or another server"), name)
			continue
		}
		ours++
		bundle, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
		insecure, _, _ := unstructured.NestedBool(service.Object, "spec", "insecureSkipTLSVerify")
		reason := unavailable(service)
		switch {
		case insecure:
			add(bad("", "insecureSkipTLSVerify: the hub does not verify the server", renew), name)
		case bundle == "":
			add(bad("", "without CA: spec.caBundle is empty, so the hub cannot verify the server", renew), name)
		case reason == "":
			add(healthy("", "available"), name)
		case strings.Contains(reason, "unknown authority"):
			add(bad("", "wrong CA: spec.caBundle is not the certificate authority of the server's certificate", renew), name)
		case strings.Contains(reason, "certificate has expired"):
			add(bad("", "the serving certificate of the server has expired", renewCertificate), name)
		case strings.HasPrefix(reason, "ServiceNotFound"):
			add(bad("", "the Service "+hubNamespace+"/"+serverName+" is missing", "run clusteradm init"), name)
		case strings.Contains(reason, "connection refused"), strings.HasPrefix(reason, "MissingEndpoints"), strings.HasPrefix(reason, "EndpointsNotFound"):
			add(bad("", "the server does not run, or is not ready", findServer), name)
		default:
			// The message repeats the name and the address, which would make every finding different.
			short, _, _ := strings.Cut(reason, ":")
			if at := strings.LastIndex(reason, ": "); at > len(short) {
				short += reason[at:]
			}
			add(bad("", "not available: "+short, findServer+"; kubectl describe apiservice shows the whole message"), name)
		}
	}
	var findings []finding
	for f, of := range names {
		f.Subject = "APIServices " + some(of)
		if f.State == stateOK {
			f.Subject = fmt.Sprintf("%d APIServices", len(of))
		}
		findings = append(findings, f)
	}
	slices.SortFunc(findings, func(a, b finding) int { return strings.Compare(a.State+a.Subject, b.State+b.Subject) })
	return findings
}

// serverPermissions checks what the hub allows the ServiceAccount of the server, against the roles of
// the manifests.
func (d *hubDoctor) serverPermissions(ctx context.Context) []finding {
	const subject = "permissions of the server on the hub"
	objects, err := manifests("rbac/hub-apiserver.yaml")
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	wanted := []authorizationv1.ResourceAttributes{
		{Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"},
		{Namespace: metav1.NamespaceSystem, Resource: "configmaps", Name: "extension-apiserver-authentication", Verb: "get"},
	}
	for _, object := range objects {
		rules, err := rulesOf(object)
		if err != nil {
			return []finding{unknown(subject, err)}
		}
		wanted = append(wanted, attributesOf(object.GetNamespace(), rules)...)
	}
	missing, err := missingPermissions(ctx, d.kube, "system:serviceaccount:"+hubNamespace+":"+serverName, wanted)
	switch {
	case err != nil:
		return []finding{unknown(subject, err)}
	case len(missing) > 0:
		return []finding{bad(subject, "role missing or incomplete: ServiceAccount "+hubNamespace+"/"+serverName+" cannot "+some(missing), "apply artifacts/rbac: run clusteradm init again")}
	}
	return []finding{healthy(subject, "complete")}
}

// rulesOf returns the rules of a Role or a ClusterRole, or none.
func rulesOf(object *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
		return nil, nil
	}
	var role rbacv1.ClusterRole
	err := fromUnstructured(object, &role)
	return role.Rules, err
}

// attributesOf returns the permissions of rules.
func attributesOf(namespace string, rules []rbacv1.PolicyRule) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, entry := range rule.Resources {
				resource, subresource, _ := strings.Cut(entry, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, authorizationv1.ResourceAttributes{
							Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Name: name, Verb: verb,
						})
					}
				}
			}
		}
	}
	return all
}

// missingPermissions returns the permissions that a ServiceAccount lacks, with the verbs of each
// resource together.
func missingPermissions(ctx context.Context, kube kubernetes.Interface, user string, wanted []authorizationv1.ResourceAttributes) ([]string, error) {
	var order []string
	verbs := map[string][]string{}
	groups := []string{"system:authenticated", "system:serviceaccounts"}
	if _, account, ok := strings.Cut(user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		groups = append(groups, "system:serviceaccounts:"+namespace)
	}
	for _, attributes := range wanted {
		review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if review.Status.Allowed {
			continue
		}
		what := attributes.Resource
		if attributes.Subresource != "" {
			what += "/" + attributes.Subresource
		}
		if attributes.Group != "" {
			what += "." + attributes.Group
		}
		if attributes.Name != "" {
			what += " " + attributes.Name
		}
		if attributes.Namespace != "" {
			what += " in " + attributes.Namespace
		}
		if verbs[what] == nil {
			order = append(order, what)
		}
		if !slices.Contains(verbs[what], attributes.Verb) {
			verbs[what] = append(verbs[what], attributes.Verb)
		}
	}
	missing := make([]string, 0, len(order))
	for _, what := range order {
		missing = append(missing, strings.Join(verbs[what], "/")+" "+what)
	}
	return missing, nil
}

// agentRoles compares the roles of agents on the hub with the manifests.
func (d *hubDoctor) agentRoles(ctx context.Context) []finding {
	const subject, remedy = "roles of the agents on the hub", "apply artifacts/agent/hub: run clusteradm init again"
	objects, err := manifests("agent/hub/*.yaml")
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	var findings []finding
	for _, object := range objects {
		rules, err := rulesOf(object)
		if err != nil || len(rules) == 0 {
			continue
		}
		role, err := d.kube.RbacV1().ClusterRoles().Get(ctx, object.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			findings = append(findings, bad(subject, "role missing: ClusterRole "+object.GetName(), remedy))
			continue
		case err != nil:
			return []finding{unknown(subject, err)}
		}
		if covered, missing := validation.Covers(role.Rules, rules); !covered {
			var lacks []string
			for _, attributes := range attributesOf("", missing) {
				lacks = append(lacks, strings.TrimSpace(attributes.Verb+" "+strings.TrimSuffix(attributes.Resource+"/"+attributes.Subresource, "/")+" "+attributes.Name))
			}
			findings = append(findings, bad(subject, "role incomplete: ClusterRole "+object.GetName()+" does not allow "+some(lacks), remedy))
		}
	}
	if len(findings) == 0 {
		findings = append(findings, healthy(subject, "complete"))
	}
	return findings
}

// clusters checks whether the agents of the clusters work, and their clocks.
func (d *hubDoctor) clusters(ctx context.Context) []finding {
	const subject = "ManagedClusters"
	list, err := d.ocm.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	leases, err := d.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, clusterLease).String(),
	})
	var findings []finding
	if err != nil {
		findings = append(findings, unknown("Leases of the clusters", err))
	}
	renewed := map[string]time.Time{}
	if leases != nil {
		for _, lease := range leases.Items {
			if lease.Spec.RenewTime != nil {
				renewed[lease.Namespace] = lease.Spec.RenewTime.Time
			}
		}
	}
	working := 0
	for i := range list.Items {
		f := clusterFinding(&list.Items[i], renewed[list.Items[i].Name], time.Now())
		if f == nil {
			working++
			continue
		}
		findings = append(findings, *f)
	}
	slices.SortStableFunc(findings, func(a, b finding) int { return strings.Compare(a.State, b.State) })
	findings = append(abridged(findings, "ManagedClusters"), agentVersions(list.Items, version.Short())...)
	findings = append(findings, restoreFindings(list.Items)...)
	return append(findings, healthy(subject, fmt.Sprintf("%d of %d are accepted and available", working, len(list.Items))))
}

// agentVersions returns a finding about the agents with a version that is too far from that of this command.
func agentVersions(clusters []clusterv1.ManagedCluster, own string) []finding {
	const subject = "versions of the agents"
	var distant []string
	for i := range clusters {
		for _, claim := range clusters[i].Status.ClusterClaims {
			if claim.Name == clusterv1.AgentVersionClaim && skew(subject, claim.Value, own).State == stateBad {
				distant = append(distant, clusters[i].Name+" ("+claim.Value+")")
			}
		}
	}
	if len(distant) == 0 {
		return nil
	}
	return []finding{bad(subject, "more than one minor release from clusteradm "+own+": "+some(distant), "upgrade them: run clusteradm upgrade agent on these clusters, one minor release at a time")}
}

// clusterFinding returns a finding about a cluster whose Lease was renewed at a time, or nil if the
// cluster has no problem.
func clusterFinding(cluster *clusterv1.ManagedCluster, renewed, now time.Time) *finding {
	subject := "ManagedCluster " + cluster.Name
	conditions := cluster.Status.Conditions
	if !cluster.Spec.HubAcceptsClient {
		f := warning(subject, "waits for acceptance", "run clusteradm accept --clusters "+cluster.Name)
		if denied := meta.FindStatusCondition(conditions, clusterv1.ManagedClusterConditionHubAccepted); denied != nil && denied.Status == metav1.ConditionFalse {
			f = warning(subject, "denied by the hub: "+denied.Message, "to give it access, run clusteradm accept --clusters "+cluster.Name)
		}
		return &f
	}
	const agent = "run clusteradm doctor agent with the kubeconfig of that cluster"
	if deleting := meta.FindStatusCondition(conditions, clusterv1.ManagedClusterConditionDeleting); cluster.DeletionTimestamp != nil && deleting != nil {
		f := warning(subject, "is being deleted: "+deleting.Message, "wait, or "+agent)
		return &f
	}
	duration := time.Duration(ptr.Deref(cluster.Spec.LeaseDurationSeconds, 60)) * time.Second
	switch {
	case !renewed.IsZero() && renewed.Sub(now) > maxSkew:
		f := bad(subject, fmt.Sprintf("clock off: its Lease was renewed %s in the future", renewed.Sub(now).Round(time.Second)), "synchronize the clocks of that cluster and of this machine by NTP")
		return &f
	case !renewed.IsZero() && now.Sub(renewed) > silentLeases*duration:
		f := bad(subject, "agent down: it has not renewed its Lease since "+renewed.UTC().Format(time.RFC3339), agent+"; the agent does not run, cannot reach the hub, or its certificate has expired")
		return &f
	case !meta.IsStatusConditionTrue(conditions, clusterv1.ManagedClusterConditionJoined):
		f := warning(subject, "accepted, but its agent has not joined", agent)
		return &f
	}
	if clock := meta.FindStatusCondition(conditions, clusterv1.ManagedClusterConditionClockSynced); clock != nil && clock.Status == metav1.ConditionFalse {
		f := bad(subject, "clock off: "+clock.Message, "synchronize the clock of that cluster by NTP")
		return &f
	}
	if available := meta.FindStatusCondition(conditions, clusterv1.ManagedClusterConditionAvailable); available == nil || available.Status != metav1.ConditionTrue {
		cause := "its agent has not reported yet"
		if available != nil {
			cause = available.Reason + ": " + available.Message
			if available.Status == metav1.ConditionUnknown {
				cause = "agent down: " + cause
			}
		}
		f := bad(subject, cause, agent)
		return &f
	}
	return nil
}

// requests checks whether the certificate requests of agents are approved and signed.
func (d *hubDoctor) requests(ctx context.Context) []finding {
	const subject = "certificate requests of agents"
	list, err := d.kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		LabelSelector: clusterv1.ClusterNameLabel,
		FieldSelector: fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientSignerName).String(),
	})
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	var pending, unsigned, refused []string
	for _, request := range list.Items {
		if time.Since(request.CreationTimestamp.Time) < settling || len(request.Status.Certificate) > 0 {
			continue
		}
		name := fmt.Sprintf("%s of %s", request.Name, request.Labels[clusterv1.ClusterNameLabel])
		approved := false
		var failed string
		for _, condition := range request.Status.Conditions {
			switch condition.Type {
			case certificatesv1.CertificateApproved:
				approved = true
			case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
				failed = fmt.Sprintf("%s (%s)", name, condition.Type)
			}
		}
		switch {
		case failed != "":
			refused = append(refused, failed)
		case approved:
			unsigned = append(unsigned, name)
		default:
			pending = append(pending, name)
		}
	}
	var findings []finding
	if len(unsigned) > 0 {
		findings = append(findings, bad(subject, "approved but not signed: "+some(unsigned), "the hub has no signer for "+certificatesv1.KubeAPIServerClientSignerName+": start the controller csrsigning of kube-controller-manager; on EKS, use --registration-auth=aws-irsa"))
	}
	if len(pending) > 0 {
		findings = append(findings, warning(subject, "not approved: "+some(pending), "run clusteradm accept --clusters with the names of these clusters"))
	}
	if len(refused) > 0 {
		findings = append(findings, warning(subject, "denied or failed: "+some(refused), "see kubectl describe csr; the agents request again"))
	}
	if len(findings) == 0 {
		findings = append(findings, healthy(subject, "none waits"))
	}
	return findings
}

// lastWrite returns the time of the last change of an object except its subresources.
func lastWrite(object *metav1.ObjectMeta) time.Time {
	last := object.CreationTimestamp.Time
	for _, entry := range object.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// late reports whether a change of an object has not taken effect within a reasonable time.
func late(object *metav1.ObjectMeta, condition *metav1.Condition) (string, bool) {
	switch {
	case time.Since(lastWrite(object)) < settling:
		return "", false
	case condition != nil && condition.Reason == workv1.ReasonWaitingForManagedCluster:
		return condition.Message, true // without the generation, which no agent has observed
	case condition == nil || condition.ObservedGeneration < object.Generation:
		return "generation " + fmt.Sprint(object.Generation) + " is not processed", true
	case condition.Status == metav1.ConditionFalse:
		return condition.Message, true
	}
	return "", false
}

// behind returns findings about late objects, by namespace.
func behind(kind string, late map[string][]string, inspected int, complete bool, remedy string) []finding {
	var findings []finding
	for _, namespace := range slices.Sorted(maps.Keys(late)) {
		names := late[namespace]
		findings = append(findings, warning(kind+" of "+namespace, fmt.Sprintf("%d not delivered: %s", len(names), some(names)), remedy))
	}
	if len(findings) == 0 {
		findings = append(findings, healthy(kind, fmt.Sprintf("all of %d are delivered", inspected)))
	}
	findings = abridged(findings, "namespaces with late "+kind)
	if !complete {
		findings = append(findings, finding{State: stateUnknown, Subject: kind, Cause: fmt.Sprintf("only %d were inspected", inspected), Remedy: "see the metrics for the others"})
	}
	return findings
}

// works finds ManifestWorks that the agents have not applied.
func (d *hubDoctor) works(ctx context.Context) []finding {
	const kind = "ManifestWorks"
	behindBy, inspected := map[string][]string{}, 0
	options := metav1.ListOptions{Limit: inspectedPage}
	for {
		page, err := d.ocm.WorkV1().ManifestWorks(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return []finding{unknown(kind, err)}
		}
		inspected += len(page.Items)
		for i := range page.Items {
			work := &page.Items[i]
			if cause, is := late(&work.ObjectMeta, meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)); is {
				behindBy[work.Namespace] = append(behindBy[work.Namespace], work.Name+" ("+cause+")")
			}
		}
		if options.Continue = page.Continue; options.Continue == "" || inspected >= maxInspected {
			break
		}
	}
	return behind(kind, behindBy, inspected, options.Continue == "", "see the condition Applied of the manifests: kubectl describe manifestwork; if the agent is down, correct that first")
}

// clusterPermissions finds ClusterPermissions that are not delivered.
func (d *hubDoctor) clusterPermissions(ctx context.Context) []finding {
	const kind = "ClusterPermissions"
	behindBy, inspected := map[string][]string{}, 0
	options := metav1.ListOptions{Limit: inspectedPage}
	for {
		page, err := d.ocm.RbacV1alpha1().ClusterPermissions(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return []finding{unknown(kind, err)}
		}
		inspected += len(page.Items)
		for i := range page.Items {
			permission := &page.Items[i]
			if cause, is := late(&permission.ObjectMeta, meta.FindStatusCondition(permission.Status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork)); is {
				behindBy[permission.Namespace] = append(behindBy[permission.Namespace], permission.Name+" ("+cause+")")
			}
		}
		if options.Continue = page.Continue; options.Continue == "" || inspected >= maxInspected {
			break
		}
	}
	return behind(kind, behindBy, inspected, options.Continue == "", "see the conditions: kubectl describe clusterpermission")
}

// search checks the search engine, and the age of the reports of the clusters.
func (d *hubDoctor) search(ctx context.Context) []finding {
	const subject = "search"
	_, err := d.ocm.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
		SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:Namespace"}, Limit: ptr.To[int32](1),
	}}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "loading the search data"):
		return []finding{warning(subject, "the engine is loading its data, or its PostgreSQL database has not responded since the start of the server", "wait; if it takes longer than some minutes, start PostgreSQL and read the log of the server")}
	case apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "engine is unavailable"):
		return []finding{bad(subject, "database away: the PostgreSQL database of search does not respond to the server", "start PostgreSQL, and check --search-postgres-url-file and the network; the log of the server contains the error")}
	case apierrors.IsNotFound(err):
		return []finding{healthy(subject, "not enabled (--search-engine=none)")}
	case err != nil:
		return []finding{unknown(subject, err)}
	}
	list, err := d.ocm.SearchV1alpha1().Inventories(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []finding{healthy(subject, "responds"), unknown("reports to search", err)}
	}
	var silent, incomplete []string
	for _, inventory := range list.Items {
		switch inventory.Status.State {
		case searchv1alpha1.InventorySilent:
			name := inventory.Namespace
			if last := inventory.Status.LastReportTime; last != nil {
				name += " (last report " + last.UTC().Format(time.RFC3339) + ")"
			}
			silent = append(silent, name)
		case searchv1alpha1.InventoryIncomplete:
			incomplete = append(incomplete, inventory.Namespace)
		}
	}
	findings := []finding{healthy(subject, "responds")}
	if len(silent) > 0 {
		findings = append(findings, warning("reports to search", "lag: no recent report of "+some(silent), "run clusteradm doctor agent on these clusters; search shows their last state"))
	}
	if len(incomplete) > 0 {
		findings = append(findings, warning("reports to search", "incomplete: "+some(incomplete), "see kubectl describe inventory; a limit of docs/limits.md is reached, or a report is on its way"))
	}
	return findings
}

// podProblem returns why the Pods do not run, or an empty string.
func podProblem(pods []corev1.Pod) string {
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" {
				problem := fmt.Sprintf("Pod %s: %s", pod.Name, waiting.Reason)
				if last := status.LastTerminationState.Terminated; last != nil {
					problem += fmt.Sprintf(", last exit: %s (%d)", last.Reason, last.ExitCode)
				}
				return problem
			}
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return fmt.Sprintf("Pod %s: %s", pod.Name, condition.Message)
			}
		}
	}
	return ""
}

// deployment returns a finding about a Deployment, or nil if it does not exist.
func deploymentFinding(ctx context.Context, kube kubernetes.Interface, namespace, name string) (*finding, error) {
	subject := "Deployment " + namespace + "/" + name
	deployment, err := kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := healthy(subject, "available")
	if reason := rolling(deployment); reason != "" {
		remedy := fmt.Sprintf("see kubectl -n %s describe deployment %s and kubectl -n %s logs deployment/%s", namespace, name, namespace, name)
		if selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector); err == nil {
			pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
			if err == nil {
				if problem := podProblem(pods.Items); problem != "" {
					reason += "; " + problem
				}
			} else if !denied(err) {
				return nil, err
			}
		}
		f = bad(subject, reason, remedy)
	}
	return &f, nil
}
