package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/restore"
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
	report
	server string
}

func newHub(env cli.Environment) (*hubDoctor, *cobra.Command) {
	d := &hubDoctor{report: report{Environment: env}}
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
	flags.StringVarP(&d.output, "output", "o", cli.OutputTable, "Output format: table or json.")
	flags.StringVar(&d.server, "server-address", "", "Host and port of a server that runs outside of the hub. By default, the address in its Service of type ExternalName, or a port forward to one of its Pods.")
}

func (d *hubDoctor) run(ctx context.Context) error {
	return d.report.run(ctx, "hub API server",
		d.apiServices, d.checkServer, d.serverPermissions, d.agentRoles, d.clusters, d.requests,
		d.works, d.clusterPermissions, d.search, d.migration,
	)
}

// apiServices checks the registration of the server with the aggregation layer.
func (d *hubDoctor) apiServices(ctx context.Context) []cli.Finding {
	const subject = "APIServices"
	wanted, err := manifests.Read("apiservice")
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	list, err := d.Dynamic.Resource(cli.APIServices).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	found := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		found[list.Items[i].GetName()] = &list.Items[i]
	}
	names := map[cli.Finding][]string{} // by finding without subject
	for _, object := range wanted {
		f := apiServiceFinding(found[object.GetName()])
		names[f] = append(names[f], object.GetName())
	}
	var findings []cli.Finding
	for f, services := range names {
		f.Subject = "APIServices " + cli.Some(services)
		if f.State == cli.StateOK {
			f.Subject = fmt.Sprintf("%d APIServices", len(services))
		}
		findings = append(findings, f)
	}
	slices.SortFunc(findings, func(a, b cli.Finding) int { return strings.Compare(a.State+a.Subject, b.State+b.Subject) })
	return findings
}

// apiServiceFinding returns a finding without subject about an APIService, which is nil if it does not exist.
func apiServiceFinding(service *unstructured.Unstructured) cli.Finding {
	const (
		renew      = renewCertificate + "; with cert-manager, check its Certificate and its cainjector"
		findServer = "start the server; see its Deployment and its log in " + manifests.HubNamespace
	)
	if service == nil {
		return cli.Bad("", "not registered", "run clusteradm init")
	}
	target, _, _ := unstructured.NestedMap(service.Object, "spec", "service")
	if target["namespace"] != manifests.HubNamespace || target["name"] != manifests.ServerName {
		return cli.Healthy("", "served by the hub itself or another server")
	}
	bundle, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
	insecure, _, _ := unstructured.NestedBool(service.Object, "spec", "insecureSkipTLSVerify")
	reason := cli.Unavailable(service)
	switch {
	case insecure:
		return cli.Bad("", "insecureSkipTLSVerify: the hub does not verify the server", renew)
	case bundle == "":
		return cli.Bad("", "without CA: spec.caBundle is empty, so the hub cannot verify the server", renew)
	case reason == "":
		return cli.Healthy("", "available")
	case strings.Contains(reason, "unknown authority"):
		return cli.Bad("", "wrong CA: spec.caBundle is not the certificate authority of the server's certificate", renew)
	case strings.Contains(reason, "certificate has expired"):
		return cli.Bad("", "the serving certificate of the server has expired", renewCertificate)
	case strings.HasPrefix(reason, "ServiceNotFound"):
		return cli.Bad("", "the Service "+manifests.HubNamespace+"/"+manifests.ServerName+" is missing", "run clusteradm init")
	case strings.Contains(reason, "connection refused"), strings.HasPrefix(reason, "MissingEndpoints"), strings.HasPrefix(reason, "EndpointsNotFound"):
		return cli.Bad("", "the server does not run, or is not ready", findServer)
	}
	// The message repeats the name and the address, which would make every finding different.
	short, _, _ := strings.Cut(reason, ":")
	if at := strings.LastIndex(reason, ": "); at > len(short) {
		short += reason[at:]
	}
	return cli.Bad("", "not available: "+short, findServer+"; kubectl describe apiservice shows the whole message")
}

// serverPermissions checks what the hub allows the ServiceAccount of the server, against the roles of
// the manifests.
func (d *hubDoctor) serverPermissions(ctx context.Context) []cli.Finding {
	const subject = "permissions of the server on the hub"
	objects, err := manifests.Read("rbac/hub-apiserver.yaml")
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	return d.permissionsOf(ctx, subject, manifests.HubNamespace, manifests.ServerName, objects, []authorizationv1.ResourceAttributes{
		{Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"},
		{Namespace: metav1.NamespaceSystem, Resource: "configmaps", Name: "extension-apiserver-authentication", Verb: "get"},
	}, "apply artifacts/rbac: run clusteradm init again")
}

// agentRoles compares the roles of agents on the hub with the manifests.
func (d *hubDoctor) agentRoles(ctx context.Context) []cli.Finding {
	const subject, remedy = "roles of the agents on the hub", "apply artifacts/agent/hub: run clusteradm init again"
	objects, err := manifests.Read("agent/hub")
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	var findings []cli.Finding
	for _, object := range objects {
		rules, err := rulesOf(object)
		if err != nil || len(rules) == 0 {
			continue
		}
		role, err := d.Kube.RbacV1().ClusterRoles().Get(ctx, object.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			findings = append(findings, cli.Bad(subject, "role missing: ClusterRole "+object.GetName(), remedy))
			continue
		case err != nil:
			return []cli.Finding{cli.Unknown(subject, err)}
		}
		if covered, missing := validation.Covers(role.Rules, rules); !covered {
			var lacks []string
			for _, attributes := range attributesOf("", missing) {
				lacks = append(lacks, strings.TrimSpace(attributes.Verb+" "+strings.TrimSuffix(attributes.Resource+"/"+attributes.Subresource, "/")+" "+attributes.Name))
			}
			findings = append(findings, cli.Bad(subject, "role incomplete: ClusterRole "+object.GetName()+" does not allow "+cli.Some(lacks), remedy))
		}
	}
	if len(findings) == 0 {
		findings = append(findings, cli.Healthy(subject, "complete"))
	}
	return findings
}

// clusters checks whether the agents of the clusters work, and their clocks.
func (d *hubDoctor) clusters(ctx context.Context) []cli.Finding {
	const subject = "ManagedClusters"
	list, err := d.OCM.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	leases, err := d.Kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, clusterLease).String(),
	})
	var findings []cli.Finding
	if err != nil {
		findings = append(findings, cli.Unknown("Leases of the clusters", err))
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
		if f.State == cli.StateOK {
			working++
			continue
		}
		findings = append(findings, f)
	}
	slices.SortStableFunc(findings, func(a, b cli.Finding) int { return strings.Compare(a.State, b.State) })
	findings = append(cli.Abridged(findings, "ManagedClusters"), agentVersions(list.Items, version.Short())...)
	findings = append(findings, retained(list.Items)...)
	return append(findings, cli.Healthy(subject, fmt.Sprintf("%d of %d are accepted and available", working, len(list.Items))))
}

// agentVersions returns a finding about the agents with a version that is too far from that of this command.
func agentVersions(clusters []clusterv1.ManagedCluster, own string) []cli.Finding {
	const subject = "versions of the agents"
	var distant []string
	for i := range clusters {
		for _, claim := range clusters[i].Status.ClusterClaims {
			if claim.Name == clusterv1.AgentVersionClaim && skew(subject, claim.Value, own).State == cli.StateBad {
				distant = append(distant, clusters[i].Name+" ("+claim.Value+")")
			}
		}
	}
	if len(distant) == 0 {
		return nil
	}
	return []cli.Finding{cli.Bad(subject, "more than one minor release from clusteradm "+own+": "+cli.Some(distant), "upgrade them: run clusteradm upgrade agent on these clusters, one minor release at a time")}
}

// clusterFinding returns a finding about a cluster whose Lease was renewed at a time.
func clusterFinding(cluster *clusterv1.ManagedCluster, renewed, now time.Time) cli.Finding {
	subject := "ManagedCluster " + cluster.Name
	condition := func(name string) *metav1.Condition { return meta.FindStatusCondition(cluster.Status.Conditions, name) }
	if !cluster.Spec.HubAcceptsClient {
		if denied := condition(clusterv1.ManagedClusterConditionHubAccepted); denied != nil && denied.Status == metav1.ConditionFalse {
			return cli.Warning(subject, "denied by the hub: "+denied.Message, "to give it access, run clusteradm accept --clusters "+cluster.Name)
		}
		return cli.Warning(subject, "waits for acceptance", "run clusteradm accept --clusters "+cluster.Name)
	}
	const agent = "run clusteradm doctor agent with the kubeconfig of that cluster"
	if deleting := condition(clusterv1.ManagedClusterConditionDeleting); cluster.DeletionTimestamp != nil && deleting != nil {
		return cli.Warning(subject, "is being deleted: "+deleting.Message, "wait, or "+agent)
	}
	duration := time.Duration(ptr.Deref(cluster.Spec.LeaseDurationSeconds, 60)) * time.Second
	switch {
	case !renewed.IsZero() && renewed.Sub(now) > maxSkew:
		return cli.Bad(subject, fmt.Sprintf("clock off: its Lease was renewed %s in the future", renewed.Sub(now).Round(time.Second)), "synchronize the clocks of that cluster and of this machine by NTP")
	case !renewed.IsZero() && now.Sub(renewed) > silentLeases*duration:
		return cli.Bad(subject, "agent down: it has not renewed its Lease since "+renewed.UTC().Format(time.RFC3339), agent+"; the agent does not run, cannot reach the hub, or its certificate has expired")
	case !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionJoined):
		return cli.Warning(subject, "accepted, but its agent has not joined", agent)
	}
	if clock := condition(clusterv1.ManagedClusterConditionClockSynced); clock != nil && clock.Status == metav1.ConditionFalse {
		return cli.Bad(subject, "clock off: "+clock.Message, "synchronize the clock of that cluster by NTP")
	}
	switch available := condition(clusterv1.ManagedClusterConditionAvailable); {
	case available == nil:
		return cli.Bad(subject, "its agent has not reported yet", agent)
	case available.Status == metav1.ConditionUnknown:
		return cli.Bad(subject, "agent down: "+available.Reason+": "+available.Message, agent)
	case available.Status == metav1.ConditionFalse:
		return cli.Bad(subject, available.Reason+": "+available.Message, agent)
	}
	return cli.Healthy(subject, "accepted and available")
}

// requests checks whether the certificate requests of agents are approved and signed.
func (d *hubDoctor) requests(ctx context.Context) []cli.Finding {
	const subject = "certificate requests of agents"
	list, err := d.Kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		LabelSelector: clusterv1.ClusterNameLabel,
		FieldSelector: fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientSignerName).String(),
	})
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
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
	var findings []cli.Finding
	if len(unsigned) > 0 {
		findings = append(findings, cli.Bad(subject, "approved but not signed: "+cli.Some(unsigned), "the hub has no signer for "+certificatesv1.KubeAPIServerClientSignerName+": start the controller csrsigning of kube-controller-manager; on EKS, use --registration-auth=aws-irsa"))
	}
	if len(pending) > 0 {
		findings = append(findings, cli.Warning(subject, "not approved: "+cli.Some(pending), "run clusteradm accept --clusters with the names of these clusters"))
	}
	if len(refused) > 0 {
		findings = append(findings, cli.Warning(subject, "denied or failed: "+cli.Some(refused), "see kubectl describe csr; the agents request again"))
	}
	if len(findings) == 0 {
		findings = append(findings, cli.Healthy(subject, "none waits"))
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

// late returns why a change of an object has not taken effect within a reasonable time, or an empty string.
func late(object *metav1.ObjectMeta, condition *metav1.Condition) string {
	switch {
	case time.Since(lastWrite(object)) < settling:
	case condition == nil, condition.ObservedGeneration < object.Generation && condition.Reason != workv1.ReasonWaitingForManagedCluster:
		return fmt.Sprintf("generation %d is not processed", object.Generation)
	case condition.Status == metav1.ConditionFalse, condition.Reason == workv1.ReasonWaitingForManagedCluster:
		return condition.Message // without the generation if no agent has observed it
	}
	return ""
}

// delivered returns findings about late objects of a kind, by namespace. page returns the objects of a page with their
// conditions.
func delivered[T any](kind string, page func(metav1.ListOptions) ([]T, metav1.ListMeta, error), state func(*T) (*metav1.ObjectMeta, *metav1.Condition), remedy string) []cli.Finding {
	lateBy, inspected := map[string][]string{}, 0
	options := metav1.ListOptions{Limit: inspectedPage}
	for {
		items, more, err := page(options)
		if err != nil {
			return []cli.Finding{cli.Unknown(kind, err)}
		}
		inspected += len(items)
		for i := range items {
			object, condition := state(&items[i])
			if cause := late(object, condition); cause != "" {
				lateBy[object.Namespace] = append(lateBy[object.Namespace], object.Name+" ("+cause+")")
			}
		}
		if options.Continue = more.Continue; options.Continue == "" || inspected >= maxInspected {
			break
		}
	}
	var findings []cli.Finding
	for _, namespace := range slices.Sorted(maps.Keys(lateBy)) {
		names := lateBy[namespace]
		findings = append(findings, cli.Warning(kind+" of "+namespace, fmt.Sprintf("%d not delivered: %s", len(names), cli.Some(names)), remedy))
	}
	if len(findings) == 0 {
		findings = append(findings, cli.Healthy(kind, fmt.Sprintf("all of %d are delivered", inspected)))
	}
	findings = cli.Abridged(findings, "namespaces with late "+kind)
	if options.Continue != "" {
		findings = append(findings, undecided(kind, fmt.Sprintf("only %d were inspected", inspected), "see the metrics for the others"))
	}
	return findings
}

// works finds ManifestWorks that the agents have not applied.
func (d *hubDoctor) works(ctx context.Context) []cli.Finding {
	return delivered("ManifestWorks", func(options metav1.ListOptions) ([]workv1.ManifestWork, metav1.ListMeta, error) {
		page, err := d.OCM.WorkV1().ManifestWorks(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, metav1.ListMeta{}, err
		}
		return page.Items, page.ListMeta, nil
	}, func(work *workv1.ManifestWork) (*metav1.ObjectMeta, *metav1.Condition) {
		return &work.ObjectMeta, meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	}, "see the condition Applied of the manifests: kubectl describe manifestwork; if the agent is down, correct that first")
}

// clusterPermissions finds ClusterPermissions that are not delivered.
func (d *hubDoctor) clusterPermissions(ctx context.Context) []cli.Finding {
	return delivered("ClusterPermissions", func(options metav1.ListOptions) ([]rbacv1alpha1.ClusterPermission, metav1.ListMeta, error) {
		page, err := d.OCM.RbacV1alpha1().ClusterPermissions(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, metav1.ListMeta{}, err
		}
		return page.Items, page.ListMeta, nil
	}, func(permission *rbacv1alpha1.ClusterPermission) (*metav1.ObjectMeta, *metav1.Condition) {
		return &permission.ObjectMeta, meta.FindStatusCondition(permission.Status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork)
	}, "see the conditions: kubectl describe clusterpermission")
}

// search checks the search engine, and the age of the reports of the clusters.
func (d *hubDoctor) search(ctx context.Context) []cli.Finding {
	const subject = "search"
	_, err := d.OCM.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
		SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:Namespace"}, Limit: ptr.To[int32](1),
	}}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "loading the search data"):
		return []cli.Finding{cli.Warning(subject, "the engine is loading its data, or its PostgreSQL database has not responded since the start of the server", "wait; if it takes longer than some minutes, start PostgreSQL and read the log of the server")}
	case apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "engine is unavailable"):
		return []cli.Finding{cli.Bad(subject, "database away: the PostgreSQL database of search does not respond to the server", "start PostgreSQL, and check --search-postgres-url-file and the network; the log of the server contains the error")}
	case apierrors.IsNotFound(err):
		return []cli.Finding{cli.Healthy(subject, "not enabled (--search-engine=none)")}
	case err != nil:
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	list, err := d.OCM.SearchV1alpha1().Inventories(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []cli.Finding{cli.Healthy(subject, "responds"), cli.Unknown("reports to search", err)}
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
	findings := []cli.Finding{cli.Healthy(subject, "responds")}
	if len(silent) > 0 {
		findings = append(findings, cli.Warning("reports to search", "lag: no recent report of "+cli.Some(silent), "run clusteradm doctor agent on these clusters; search shows their last state"))
	}
	if len(incomplete) > 0 {
		findings = append(findings, cli.Warning("reports to search", "incomplete: "+cli.Some(incomplete), "see kubectl describe inventory; a limit of docs/limits.md is reached, or a report is on its way"))
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

// deploymentFindings returns a Deployment and a finding about it, or nothing if it does not exist.
func deploymentFindings(ctx context.Context, kube kubernetes.Interface, namespace, name string) (*appsv1.Deployment, []cli.Finding) {
	subject := "Deployment " + namespace + "/" + name
	deployment, err := kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, []cli.Finding{cli.Unknown(subject, err)}
	}
	reason := cli.Rolling(deployment)
	if reason == "" {
		return deployment, []cli.Finding{cli.Healthy(subject, "available")}
	}
	pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector)})
	if err != nil && !denied(err) {
		return nil, []cli.Finding{cli.Unknown(subject, err)}
	}
	if err == nil {
		if problem := podProblem(pods.Items); problem != "" {
			reason += "; " + problem
		}
	}
	remedy := fmt.Sprintf("see kubectl -n %s describe deployment %s and kubectl -n %s logs deployment/%s", namespace, name, namespace, name)
	return deployment, []cli.Finding{cli.Bad(subject, reason, remedy)}
}

// migration checks whether a migration or an adoption has not ended.
func (d *hubDoctor) migration(ctx context.Context) []cli.Finding {
	const subject, remedy = "migration", "run clusteradm migrate again, with --to server or --to crds"
	frozen, err := handover.Frozen(ctx, d.Kube)
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	if frozen {
		return []cli.Finding{cli.Bad(subject, "it has not ended, and writes of ManifestWorks, clusters, ClusterPermissions and accounts are refused", remedy)}
	}
	held, err := handover.Held(ctx, d.Kube)
	switch {
	case err != nil:
		return []cli.Finding{cli.Unknown(subject, err)}
	case held:
		return []cli.Finding{cli.Warning(subject, "the server waits for it: its controllers do not run", remedy+", clusteradm hub adopt if that was interrupted, or clusteradm init --standby=false if the hub needs neither")}
	}
	return nil
}

// retained returns a finding about agents that keep objects after a restore.
func retained(clusters []clusterv1.ManagedCluster) []cli.Finding {
	var keeping []string
	for i := range clusters {
		if len(restore.Retained(&clusters[i])) > 0 {
			keeping = append(keeping, clusters[i].Name)
		}
	}
	if len(keeping) == 0 {
		return nil
	}
	return []cli.Finding{cli.Warning("restored data", "agents keep objects that the restored hub does not know: "+cli.Some(keeping),
		"run clusteradm restore list; create the ManifestWorks and accounts that must stay again, then run clusteradm restore confirm")}
}
