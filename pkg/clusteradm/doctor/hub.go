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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
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
	notProcessed = "is not processed"
	restartAgent = "save its log, and run kubectl -n " + manifests.AgentNamespace + " rollout restart deployment/" + manifests.AgentName + " on that cluster"
	// silentLeases is the number of lease durations after which a cluster counts as silent, on the hub and here.
	silentLeases = 5
	// settling is the time that a change may take before its delay is a finding.
	settling = 2 * time.Minute
	// The doctor inspects at most maxInspected objects of a kind, in pages.
	maxInspected, inspectedPage = 5000, 500
)

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
It exits with 1 if a check failed. It only reads. Without permission for a check, it prints Unknown and the
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
	return d.report.run(ctx, "hub API server", []check{
		{"APIServices", d.apiServices, ""},
		{"server", d.checkServer, ""},
		{"permissions of the server on the hub", d.serverPermissions, "complete"},
		{"roles of the agents on the hub", d.agentRoles, "complete"},
		{"ManagedClusters", d.clusters, ""},
		{"certificate requests of agents", d.requests, "none waits"},
		{"ManifestWorks", d.works, ""},
		{"ClusterPermissions", d.clusterPermissions, ""},
		{"search", d.search, ""},
		{"migration", d.migration, ""},
	})
}

func (d *hubDoctor) apiServices(ctx context.Context) ([]cli.Finding, error) {
	wanted, err := manifests.Read("apiservice")
	if err != nil {
		return nil, err
	}
	list, err := d.APIServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]*apiregistrationv1.APIService{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
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
	return findings, nil
}

// apiServiceFinding returns a finding without subject about an APIService, which is nil if it does not exist.
func apiServiceFinding(service *apiregistrationv1.APIService) cli.Finding {
	if service == nil {
		return cli.Bad("", "not registered", "run clusteradm init")
	}
	if !namesServer(service) {
		return cli.Healthy("", "served by the hub itself or another server")
	}
	reason := cli.Unavailable(service)
	switch {
	case service.Spec.InsecureSkipTLSVerify:
		return cli.Bad("", "insecureSkipTLSVerify: the hub does not verify the server", repairCA)
	case len(service.Spec.CABundle) == 0:
		return cli.Bad("", "without CA: spec.caBundle is empty, so the hub cannot verify the server", "the server writes it when it starts: see the line of its Deployment, and its log; with cert-manager, check its Certificate and its cainjector")
	case reason == "":
		return cli.Healthy("", "available")
	}
	for _, known := range unavailable {
		if strings.Contains(reason, known.reason) {
			return cli.Bad("", known.cause, known.remedy)
		}
	}
	// The message repeats the name and the address, which would make every finding different.
	short, _, _ := strings.Cut(reason, ":")
	if at := strings.LastIndex(reason, ": "); at > len(short) {
		short += reason[at:]
	}
	return cli.Bad("", "not available: "+short, findServer+"; kubectl describe apiservice shows the whole message")
}

const (
	repairCA   = renewCertificate + "; with cert-manager, check its Certificate and its cainjector"
	findServer = "start the server; see its Deployment and its log in " + manifests.HubNamespace
	notReady   = "the server does not run, or is not ready"
)

// unavailable are the known reasons of the hub why an APIService is not available.
var unavailable = []struct{ reason, cause, remedy string }{
	{"unknown authority", "wrong CA: spec.caBundle is not the certificate authority of the server's certificate", repairCA},
	{"certificate has expired", "the serving certificate of the server has expired", renewCertificate},
	{"ServiceNotFound", "the Service " + manifests.HubNamespace + "/" + manifests.ServerName + " is missing", "run clusteradm init"},
	{"connection refused", notReady, findServer},
	{"MissingEndpoints", notReady, findServer},
	{"EndpointsNotFound", notReady, findServer},
}

// namesServer reports whether the hub forwards a version to the server of this project.
func namesServer(service *apiregistrationv1.APIService) bool {
	target := service.Spec.Service
	return target != nil && target.Namespace == manifests.HubNamespace && target.Name == manifests.ServerName
}

// serverPermissions checks what the hub allows the ServiceAccount of the server, against the roles of the manifests.
func (d *hubDoctor) serverPermissions(ctx context.Context) ([]cli.Finding, error) {
	objects, err := manifests.Read("rbac/hub-apiserver.yaml")
	if err != nil {
		return nil, err
	}
	return d.permissionsOf(ctx, "permissions of the server on the hub", manifests.HubNamespace, manifests.ServerName, objects, []authorizationv1.ResourceAttributes{
		{Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"},
		{Namespace: metav1.NamespaceSystem, Resource: "configmaps", Name: "extension-apiserver-authentication", Verb: "get"},
	}, "apply artifacts/rbac: run clusteradm init again")
}

func (d *hubDoctor) agentRoles(ctx context.Context) ([]cli.Finding, error) {
	const subject, remedy = "roles of the agents on the hub", "apply artifacts/agent/hub: run clusteradm init again"
	objects, err := manifests.Read("agent/hub")
	if err != nil {
		return nil, err
	}
	var findings []cli.Finding
	for _, object := range objects {
		rules, err := rulesOf(object)
		if err != nil || len(rules) == 0 {
			continue
		}
		role, err := cli.Optional(d.Kube.RbacV1().ClusterRoles().Get(ctx, object.GetName(), metav1.GetOptions{}))
		if err != nil {
			return nil, err
		}
		if role == nil {
			findings = append(findings, cli.Bad(subject, "role missing: ClusterRole "+object.GetName(), remedy))
			continue
		}
		_, missing := validation.Covers(role.Rules, rules)
		findings = append(findings, about(textsOf(attributesOf("", missing)), cli.Bad(subject, "role incomplete: ClusterRole "+object.GetName()+" does not allow ", remedy))...)
	}
	return findings, nil
}

func (d *hubDoctor) clusters(ctx context.Context) ([]cli.Finding, error) {
	list, err := d.OCM.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var findings []cli.Finding
	renewed, err := renewals(ctx, d.Kube, metav1.NamespaceAll)
	if err != nil {
		findings = append(findings, cli.Unknown("Leases of the clusters", err))
	}
	var keeping []string
	working := 0
	for i := range list.Items {
		cluster := &list.Items[i]
		if len(restore.Retained(cluster)) > 0 {
			keeping = append(keeping, cluster.Name)
		}
		if f := clusterFinding(cluster, renewed[cluster.Name], time.Now(), "run clusteradm doctor agent with the kubeconfig of that cluster"); f.State != cli.StateOK {
			findings = append(findings, f)
		} else {
			working++
		}
	}
	slices.SortStableFunc(findings, func(a, b cli.Finding) int { return strings.Compare(a.State, b.State) })
	return slices.Concat(cli.Abridged(findings, "ManagedClusters"), agentVersions(list.Items, version.Short()),
		about(keeping, cli.Warning("restored data", "agents keep objects that the restored hub does not know: ",
			"run clusteradm restore list; create the ManifestWorks and accounts that must stay again, then run clusteradm restore confirm")),
		[]cli.Finding{cli.Healthy("ManagedClusters", fmt.Sprintf("%d of %d are accepted and available", working, len(list.Items)))}), nil
}

// renewals returns the times at which the agents renewed their Leases in a namespace or all namespaces, by cluster.
func renewals(ctx context.Context, kube kubernetes.Interface, namespace string) (map[string]time.Time, error) {
	leases, err := kube.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, clusterLease).String(),
	})
	renewed := map[string]time.Time{}
	if err == nil {
		for _, lease := range leases.Items {
			renewed[lease.Namespace] = ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
		}
	}
	return renewed, err
}

// about returns a finding whose cause ends with names, or none without names.
func about(names []string, f cli.Finding) []cli.Finding {
	if len(names) == 0 {
		return nil
	}
	f.Cause += cli.Some(names)
	return []cli.Finding{f}
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
	return about(distant, cli.Bad(subject, "more than one minor release from clusteradm "+own+": ", "upgrade them: run clusteradm upgrade agent on these clusters, one minor release at a time"))
}

// clusterFinding returns a finding about a cluster whose Lease was renewed at a time. agent is what to do about its agent.
func clusterFinding(cluster *clusterv1.ManagedCluster, renewed, now time.Time, agent string) cli.Finding {
	subject := "ManagedCluster " + cluster.Name
	condition := func(name string) *metav1.Condition { return meta.FindStatusCondition(cluster.Status.Conditions, name) }
	if !cluster.Spec.HubAcceptsClient {
		if denied := condition(clusterv1.ManagedClusterConditionHubAccepted); denied != nil && denied.Status == metav1.ConditionFalse {
			return cli.Warning(subject, "denied by the hub: "+denied.Message, "to give it access, run clusteradm accept --clusters "+cluster.Name)
		}
		return cli.Warning(subject, "waits for acceptance", "run clusteradm accept --clusters "+cluster.Name)
	}
	if deleting := condition(clusterv1.ManagedClusterConditionDeleting); cluster.DeletionTimestamp != nil && deleting != nil {
		return cli.Warning(subject, "is being deleted: "+deleting.Message, "wait, or "+agent)
	}
	duration := time.Duration(ptr.Deref(cluster.Spec.LeaseDurationSeconds, 60)) * time.Second
	switch {
	case !renewed.IsZero() && renewed.Sub(now) > maxSkew:
		return cli.Bad(subject, fmt.Sprintf("clock off: its Lease was renewed %s in the future", renewed.Sub(now).Round(time.Second)), "synchronize the clocks of that cluster and of this machine by NTP")
	case !renewed.IsZero() && now.Sub(renewed) > silentLeases*duration:
		return cli.Bad(subject, "agent down: it has not renewed its Lease since "+renewed.UTC().Format(time.RFC3339), agent+"; the agent does not run, hangs, cannot reach the hub, or its certificate has expired")
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
	case !renewed.IsZero() && now.Sub(renewed) > duration*3/2: // the agent renews it once in a duration
		return cli.Warning(subject, fmt.Sprintf("its Lease was not renewed for %s", now.Sub(renewed).Round(time.Second)), agent+"; if the agent runs, it hangs or cannot reach the hub: "+restartAgent)
	}
	return cli.Healthy(subject, "accepted and available")
}

func (d *hubDoctor) requests(ctx context.Context) ([]cli.Finding, error) {
	const subject = "certificate requests of agents"
	list, err := d.Kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		LabelSelector: clusterv1.ClusterNameLabel,
		FieldSelector: fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientSignerName).String(),
	})
	if err != nil {
		return nil, err
	}
	var pending, unsigned, refused []string
	for _, request := range list.Items {
		if time.Since(request.CreationTimestamp.Time) < settling || len(request.Status.Certificate) > 0 {
			continue
		}
		name := fmt.Sprintf("%s of %s", request.Name, request.Labels[clusterv1.ClusterNameLabel])
		conditions := request.Status.Conditions
		// A refusal may follow an approval, whose condition stays.
		refusal := slices.IndexFunc(conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type != certificatesv1.CertificateApproved
		})
		switch {
		case refusal >= 0:
			refused = append(refused, fmt.Sprintf("%s (%s)", name, conditions[refusal].Type))
		case len(conditions) > 0:
			unsigned = append(unsigned, name)
		default:
			pending = append(pending, name)
		}
	}
	return slices.Concat(
		about(unsigned, cli.Bad(subject, "approved but not signed: ", "the hub has no signer for "+certificatesv1.KubeAPIServerClientSignerName+": start the controller csrsigning of kube-controller-manager; on EKS, use --registration-auth=aws-irsa")),
		about(pending, cli.Warning(subject, "not approved: ", "run clusteradm accept --clusters with the names of these clusters")),
		about(refused, cli.Warning(subject, "denied or failed: ", "see kubectl describe csr; the agents request again")),
	), nil
}

// late returns why a change of an object has not taken effect within a reasonable time, or an empty string.
func late(object metav1.Object, condition *metav1.Condition) string {
	changed := object.GetCreationTimestamp().Time
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(changed) {
			changed = entry.Time.Time
		}
	}
	deleted := object.GetDeletionTimestamp()
	if deleted != nil {
		changed = deleted.Time
	}
	switch {
	case time.Since(changed) < settling:
	case deleted != nil:
		return "its deletion " + notProcessed
	case condition == nil, condition.ObservedGeneration < object.GetGeneration() && condition.Reason != workv1.ReasonWaitingForManagedCluster:
		return fmt.Sprintf("generation %d %s", object.GetGeneration(), notProcessed)
	case condition.Status == metav1.ConditionFalse, condition.Reason == workv1.ReasonWaitingForManagedCluster:
		return condition.Message // without the generation if no agent has observed it
	}
	return ""
}

// delivered returns findings about late objects of a kind, by namespace. condition returns what shows their delivery.
func delivered[L interface {
	metav1.ListInterface
	runtime.Object
}](ctx context.Context, kind string, list func(context.Context, metav1.ListOptions) (L, error), condition func(runtime.Object) *metav1.Condition, remedy string) ([]cli.Finding, error) {
	lateBy, inspected := map[string][]string{}, 0
	options := metav1.ListOptions{Limit: inspectedPage}
	for more := true; more; more = options.Continue != "" && inspected < maxInspected {
		page, err := list(ctx, options)
		if err != nil {
			return nil, err
		}
		if err := meta.EachListItem(page, func(item runtime.Object) error {
			inspected++
			object := item.(metav1.Object)
			if cause := late(object, condition(item)); cause != "" {
				lateBy[object.GetNamespace()] = append(lateBy[object.GetNamespace()], object.GetName()+" ("+cause+")")
			}
			return nil
		}); err != nil {
			return nil, err
		}
		options.Continue = page.GetContinue()
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
	return findings, nil
}

func (d *hubDoctor) works(ctx context.Context) ([]cli.Finding, error) {
	findings, err := delivered(ctx, "ManifestWorks", d.OCM.WorkV1().ManifestWorks(metav1.NamespaceAll).List, func(item runtime.Object) *metav1.Condition {
		return meta.FindStatusCondition(item.(*workv1.ManifestWork).Status.Conditions, workv1.WorkApplied)
	}, "see the condition Applied of the manifests: kubectl describe manifestwork; if the agent is down, correct that first")
	renewed, _ := renewals(ctx, d.Kube, metav1.NamespaceAll) // an error is a finding about the ManagedClusters
	for i, f := range findings {
		if !strings.Contains(f.Cause, notProcessed) {
			continue
		}
		// The manifests of a ManifestWork that the agent has not processed have no conditions.
		if at := renewed[strings.TrimPrefix(f.Subject, "ManifestWorks of ")]; !at.IsZero() {
			findings[i].Cause += fmt.Sprintf("; the agent renewed its Lease %s ago", time.Since(at).Round(time.Second))
		}
		findings[i].Remedy = "if the line of the ManagedCluster has no other remedy, the agent hangs: " + restartAgent
	}
	return findings, err
}

func (d *hubDoctor) clusterPermissions(ctx context.Context) ([]cli.Finding, error) {
	return delivered(ctx, "ClusterPermissions", d.OCM.RbacV1alpha1().ClusterPermissions(metav1.NamespaceAll).List, func(item runtime.Object) *metav1.Condition {
		return meta.FindStatusCondition(item.(*rbacv1alpha1.ClusterPermission).Status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork)
	}, "see the conditions: kubectl describe clusterpermission")
}

func (d *hubDoctor) search(ctx context.Context) ([]cli.Finding, error) {
	const subject, reports = "search", "reports to search"
	_, err := d.OCM.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
		SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:Namespace"}, Limit: ptr.To[int32](1),
	}}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "loading the search data"):
		return []cli.Finding{cli.Warning(subject, "the engine is loading its data, or its PostgreSQL database has not responded since the start of the server", "wait; if it takes longer than some minutes, start PostgreSQL and read the log of the server")}, nil
	case apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "engine is unavailable"):
		return []cli.Finding{cli.Bad(subject, "database unavailable: the PostgreSQL database of search does not respond to the server", "start PostgreSQL, and check --search-postgres-url-file and the network; the log of the server contains the error")}, nil
	case apierrors.IsNotFound(err):
		return []cli.Finding{cli.Healthy(subject, "not enabled (--search-engine=none)")}, nil
	case err != nil:
		return nil, err
	}
	healthy := cli.Healthy(subject, "responds")
	list, err := d.OCM.SearchV1alpha1().Inventories(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []cli.Finding{healthy, cli.Unknown(reports, err)}, nil
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
	return slices.Concat([]cli.Finding{healthy},
		about(silent, cli.Warning(reports, "lag: no recent report of ", "run clusteradm doctor agent on these clusters; search shows their last state")),
		about(incomplete, cli.Warning(reports, "incomplete: ", "see kubectl describe inventory; a limit is reached, or a report is on its way: see "+version.Docs("limits.md#search"))),
	), nil
}

// deploymentFindings returns a Deployment and a finding about it, or nothing if it does not exist.
func deploymentFindings(ctx context.Context, kube kubernetes.Interface, namespace, name string) (*appsv1.Deployment, []cli.Finding) {
	subject := "Deployment " + namespace + "/" + name
	deployment, err := cli.Optional(kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return nil, []cli.Finding{cli.Unknown(subject, err)}
	}
	if deployment == nil {
		return nil, nil
	}
	reason := cli.Rolling(deployment)
	cause, remedy := cli.PodProblem(ctx, kube, deployment)
	switch {
	case reason == "" && cause == "":
		return deployment, []cli.Finding{cli.Healthy(subject, "available")}
	case reason == "":
		return deployment, []cli.Finding{cli.Warning(subject, "available, but "+cause, remedy)}
	case cause == "":
		return deployment, []cli.Finding{cli.Bad(subject, reason, fmt.Sprintf("see kubectl -n %[1]s describe deployment %[2]s and kubectl -n %[1]s logs deployment/%[2]s", namespace, name))}
	}
	return deployment, []cli.Finding{cli.Bad(subject, reason+"; "+cause, remedy)}
}

func (d *hubDoctor) migration(ctx context.Context) ([]cli.Finding, error) {
	const subject, remedy = "migration", "run clusteradm migrate again, with --to server or --to crds"
	frozen, err := handover.Frozen(ctx, d.Kube)
	if err != nil {
		return nil, err
	}
	if frozen {
		return []cli.Finding{cli.Bad(subject, "it has not ended, and writes of ManifestWorks, clusters, ClusterPermissions and accounts are refused", remedy)}, nil
	}
	held, err := handover.Held(ctx, d.Kube)
	if err != nil || !held {
		return nil, err
	}
	return []cli.Finding{cli.Warning(subject, "the server waits for it: its controllers do not run", remedy+", clusteradm hub adopt if that was interrupted, or clusteradm init --standby=false if the hub needs neither")}, nil
}
