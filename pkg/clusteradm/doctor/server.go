package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	// oldestHub and newestHub are the minor releases of Kubernetes on which the server is tested.
	oldestHub, newestHub = 35, 37
	// renewCertificate is what to do about a certificate that the server should have renewed.
	renewCertificate = "the server renews the Secret " + manifests.ServingSecret + " and caBundle: read its log and /readyz/serving-certificate; if somebody else created that Secret, renew it, or delete it to let the server create one"
	// nearQuota is the share of a limit from which the doctor warns.
	nearQuota = 0.8
)

// checkServer checks the server, over a direct connection. It never sends a token: the server could use it for itself.
func (d *hubDoctor) checkServer(ctx context.Context) ([]cli.Finding, error) {
	const subject = "server"
	_, deployment := deploymentFindings(ctx, d.Kube, manifests.HubNamespace, manifests.ServerName)
	findings := append([]cli.Finding{d.hubVersion(ctx)}, deployment...)
	bundle, port, err := d.registration(ctx)
	if err != nil {
		return findings, err
	}
	address, stop, err := d.locate(ctx, port)
	if err != nil {
		f := cli.Unknown(subject, err)
		if !apierrors.IsForbidden(err) {
			f.Remedy = "see the line of the APIServices for the view of the hub; for a server outside of the hub, set --server-address"
		}
		return append(findings, f), nil
	}
	defer stop()
	client, credentials, err := d.serverClient(bundle)
	if err != nil {
		return findings, err
	}
	defer client.CloseIdleConnections()

	base := "https://" + address
	ready, err := get(ctx, client, base+"/readyz?verbose")
	const presentedCertificate = "serving certificate of the server"
	switch {
	case cli.IsCertificateError(err) && (len(bundle) == 0 || cli.CountBad(deployment) > 0):
		// Until it has read its certificate, the server uses another one.
		return append(findings, undecided(presentedCertificate, "the server starts", "wait; if it stays, see the log of the server and the line of the APIServices")), nil
	case cli.IsCertificateError(err):
		return append(findings, cli.Bad(presentedCertificate, "the caBundle of the APIServices does not verify it: "+err.Error(), renewCertificate)), nil
	case err != nil:
		return append(findings, undecided(subject, "cannot be reached from here: "+err.Error(), "see the line of the APIServices for the view of the hub; read the log of the server")), nil
	}
	findings = append(findings, validity(presentedCertificate, ready.tls.PeerCertificates[0], renewCertificate), ready.clock("clock of the server"))
	findings = append(findings, d.readiness(ctx, client, base, ready)...)
	findings = append(findings, d.serverVersion(ctx, client, base))
	return append(findings, d.measured(ctx, client, base, credentials)...), nil
}

// registration returns the certificate authority and the port of the server in its APIServices.
func (d *hubDoctor) registration(ctx context.Context) (bundle []byte, port int32, err error) {
	list, err := d.APIServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, err
	}
	own := slices.DeleteFunc(list.Items, func(service apiregistrationv1.APIService) bool { return !namesServer(&service) })
	if len(own) == 0 {
		return nil, 0, errors.New("no APIService names the Service " + manifests.HubNamespace + "/" + manifests.ServerName)
	}
	// Those without a certificate authority have a finding of their own.
	i := max(0, slices.IndexFunc(own, func(service apiregistrationv1.APIService) bool { return len(service.Spec.CABundle) > 0 }))
	return own[i].Spec.CABundle, ptr.Deref(own[i].Spec.Service.Port, 443), nil
}

// locate returns an address of the server, and a function that ends the connection to it.
func (d *hubDoctor) locate(ctx context.Context, port int32) (address string, stop func(), err error) {
	if d.server != "" {
		return d.server, func() {}, nil
	}
	service, err := d.Kube.CoreV1().Services(manifests.HubNamespace).Get(ctx, manifests.ServerName, metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port))), func() {}, nil
	}
	list, err := d.Kube.DiscoveryV1().EndpointSlices(manifests.HubNamespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + manifests.ServerName})
	if err != nil {
		return "", nil, err
	}
	pod, target := backend(service, list.Items, port)
	if pod == "" {
		return "", nil, fmt.Errorf("the Service %s/%s has no running Pod for port %d", manifests.HubNamespace, manifests.ServerName, port)
	}
	address, stop, err = d.forward(ctx, pod, target)
	return address, stop, cli.Prefix(err, "port forward to Pod %s", pod)
}

// backend returns a Pod and its port to which a port of a Service leads, if possible a ready Pod, or "" if there is none.
func backend(service *corev1.Service, endpoints []discoveryv1.EndpointSlice, port int32) (pod string, target int32) {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return "", 0
	}
	for _, slice := range endpoints {
		at := slices.IndexFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == service.Spec.Ports[i].Name })
		for _, endpoint := range slice.Endpoints {
			ready := ptr.Deref(endpoint.Conditions.Ready, true)
			if at < 0 || endpoint.TargetRef == nil || ptr.Deref(endpoint.Conditions.Terminating, false) || pod != "" && !ready {
				continue
			}
			if pod, target = endpoint.TargetRef.Name, ptr.Deref(slice.Ports[at].Port, port); ready {
				return pod, target
			}
		}
	}
	return pod, target
}

// forward forwards a free local port to a Pod, until stop is called.
func (d *hubDoctor) forward(ctx context.Context, pod string, port int32) (local string, stop func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(d.Config)
	if err != nil {
		return "", nil, err
	}
	address := d.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(manifests.HubNamespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	// The requests through the port report its failures. The log would repeat them between the lines of the report.
	forwarding, end := context.WithCancel(logr.NewContext(ctx, logr.Discard()))
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesWithContext(forwarding, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ready, io.Discard, io.Discard)
	if err != nil {
		end()
		return "", nil, err
	}
	finished := make(chan error, 1)
	go func() { finished <- forwarder.ForwardPorts() }()
	select {
	case err = <-finished:
		err = cmp.Or(err, errors.New("it ended"))
	case <-ctx.Done():
		err = ctx.Err()
	case <-ready:
		var ports []portforward.ForwardedPort
		if ports, err = forwarder.GetPorts(); err == nil {
			return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { end(); <-finished }, nil
		}
	}
	end()
	return "", nil, err
}

// serverClient returns a client for direct connections to the server, and whether it has a client certificate. Like the
// aggregation layer of the hub, it trusts only the certificate authorities of the APIServices.
func (d *hubDoctor) serverClient(bundle []byte) (client *http.Client, credentials bool, err error) {
	config := rest.CopyConfig(d.Config)
	config.TLSClientConfig.CAData, config.TLSClientConfig.CAFile, config.TLSClientConfig.Insecure = nil, "", false
	config.TLSClientConfig.ServerName = manifests.ServerName + "." + manifests.HubNamespace + ".svc"
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, false, err
	}
	settings.RootCAs = x509.NewCertPool()
	settings.RootCAs.AppendCertsFromPEM(bundle)
	credentials = len(settings.Certificates) > 0 || settings.GetClientCertificate != nil
	client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: settings},
		// The server redirects no request, and another program must not choose the next address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, credentials, nil
}

var readinessRemedies = map[string]string{
	"etcd":                "start etcd, and check --etcd-servers and the network between the server and etcd",
	"etcd-readiness":      "start etcd, and check --etcd-servers and the network between the server and etcd",
	"hub-permissions":     "apply artifacts/rbac: run clusteradm init again",
	"serving-certificate": renewCertificate,
	"informer-sync":       "see the line of the permissions of the server",
	"stuck-workers":       "save the log of the server, which names the object, then restart the server; if it returns for the same object, report it",
	"search":              "see the line of the permissions of the server",
	"shutdown":            "the server stops; wait for its replacement",
}

func (d *hubDoctor) readiness(ctx context.Context, client *http.Client, base string, ready *response) []cli.Finding {
	if ready.status == http.StatusOK {
		return []cli.Finding{cli.Healthy("server", "ready")}
	}
	names := failing(ready.body)
	if len(names) == 0 {
		return []cli.Finding{undecided("server", fmt.Sprintf("/readyz responds with %d", ready.status), "read the log of the server")}
	}
	var findings []cli.Finding
	for _, name := range names {
		cause := "the readiness check " + name + " fails"
		if details, err := get(ctx, client, base+"/readyz/"+name); err == nil && details.status == http.StatusInternalServerError {
			cause += ": " + strings.TrimSpace(strings.TrimPrefix(details.body, "internal server error: "))
		}
		findings = append(findings, cli.Bad("server", cause, cmp.Or(readinessRemedies[name], "read the log of the server")))
	}
	return findings
}

func (d *hubDoctor) hubVersion(ctx context.Context) cli.Finding {
	const subject = "version of the hub"
	info, err := discovery.ToServerVersionInterfaceWithContext(d.Kube.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return cli.Unknown(subject, err)
	}
	parsed, err := utilversion.ParseGeneric(info.GitVersion)
	switch {
	case err != nil:
		return cli.Unknown(subject, err)
	case parsed.Major() != 1 || parsed.Minor() < oldestHub:
		return cli.Warning(subject, info.GitVersion+" is older than the oldest supported one", fmt.Sprintf("upgrade the hub to Kubernetes 1.%d or later", oldestHub))
	case parsed.Minor() > newestHub:
		return cli.Warning(subject, info.GitVersion+" is newer than the releases that are tested", fmt.Sprintf("the server is tested on Kubernetes 1.%d to 1.%d; upgrade the server when a release is available", oldestHub, newestHub))
	}
	return cli.Healthy(subject, info.GitVersion)
}

// release matches the version of a release, such as v0.5.1 or v0.5.0-rc.1, or of a commit after it.
var release = regexp.MustCompile(`^v(\d+)\.(\d+)\.\d+(-[a-z]+\.\d+)?(-\d+-g[0-9a-f]+)?$`)

// skew returns the finding about the version of another program of this project.
func skew(subject, other, own string) cli.Finding {
	theirs, ours := release.FindStringSubmatch(other), release.FindStringSubmatch(own)
	if other == own {
		return cli.Healthy(subject, other)
	}
	if theirs == nil || ours == nil {
		return cli.Warning(subject, fmt.Sprintf("%s, and clusteradm is %s: not both are releases, so their skew is unknown", other, own), "use releases that are at most one minor release apart")
	}
	minor := func(match []string) int {
		number, _ := strconv.Atoi(match[2])
		return number
	}
	if theirs[1] != ours[1] || max(minor(theirs)-minor(ours), minor(ours)-minor(theirs)) > 1 {
		return cli.Bad(subject, fmt.Sprintf("%s, and clusteradm is %s: more than one minor release apart", other, own), "upgrade the older one with clusteradm upgrade hub or clusteradm upgrade agent, one minor release at a time")
	}
	return cli.Healthy(subject, other)
}

func (d *hubDoctor) serverVersion(ctx context.Context, client *http.Client, base string) cli.Finding {
	const subject = "version of the server"
	answer, err := get(ctx, client, base+"/version")
	if err != nil {
		return cli.Unknown(subject, err)
	}
	var info apimachineryversion.Info
	if err := json.Unmarshal([]byte(answer.body), &info); err != nil || info.GitVersion == "" {
		return undecided(subject, fmt.Sprintf("/version responds with %d", answer.status), "allow GET of /version, as the ClusterRole system:public-info-viewer does")
	}
	return skew(subject, version.Of(info), version.Short())
}

// quota is the labels of the metrics of quotas. Other metrics that the doctor reads have no labels.
type quota struct{ limit, resource string }

// measured returns findings about storage and quotas from the metrics of the server.
func (d *hubDoctor) measured(ctx context.Context, client *http.Client, base string, credentials bool) []cli.Finding {
	const subject = "storage and quotas"
	answer, err := get(ctx, client, base+"/metrics")
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	if answer.status != http.StatusOK {
		remedy := "grant get of the nonResourceURL /metrics, as the ClusterRole system:monitoring does"
		if !credentials {
			remedy = "use a kubeconfig with a client certificate, because the doctor sends no token to the server; or see hub_apiserver_etcd_out_of_space and hub_apiserver_quota_used_max in the metrics"
		}
		return []cli.Finding{undecided(subject, fmt.Sprintf("/metrics of the server responds with %d", answer.status), remedy)}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(answer.body))
	if err != nil {
		return []cli.Finding{cli.Unknown(subject, err)}
	}
	values := func(name string) map[quota]float64 {
		out := map[quota]float64{}
		for _, metric := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.Label {
				labels[label.GetName()] = label.GetValue()
			}
			out[quota{labels["limit"], labels["resource"]}] = metric.GetGauge().GetValue()
		}
		return out
	}
	return slices.Concat([]cli.Finding{storageFinding(values)}, snapshotFindings(values), d.quotas(ctx, values))
}

// snapshotFindings returns a finding about the snapshots of an embedded etcd.
func snapshotFindings(values func(string) map[quota]float64) []cli.Finding {
	const subject = "snapshots"
	if values("hub_apiserver_etcd_quota_bytes")[quota{}] == 0 {
		return nil
	}
	interval := time.Duration(values("hub_apiserver_snapshot_interval_seconds")[quota{}]) * time.Second
	last := values("hub_apiserver_snapshot_last_success_timestamp_seconds")[quota{}]
	age := time.Since(time.Unix(int64(last), 0)).Round(time.Second)
	const failing = "make space in the volume of --snapshot-dir; see the log of the server"
	switch {
	case interval == 0:
		return []cli.Finding{cli.Warning(subject, "none are scheduled (--snapshot-interval=0)", "see "+version.Docs("backup.md#schedule-snapshots"))}
	case last == 0:
		return []cli.Finding{cli.Warning(subject, "none was saved yet", failing)}
	case age > 2*interval:
		return []cli.Finding{cli.Warning(subject, fmt.Sprintf("the last one was saved %s ago, with an interval of %s", age, interval), failing)}
	}
	return []cli.Finding{cli.Healthy(subject, fmt.Sprintf("the last one was saved %s ago", age))}
}

func storageFinding(values func(string) map[quota]float64) cli.Finding {
	const subject, remedy = "storage", "delete objects; the server returns the space within minutes; or restart the server with a larger --data-quota-bytes, and a larger volume"
	size, bound := values("hub_apiserver_etcd_size_bytes")[quota{}], values("hub_apiserver_etcd_quota_bytes")[quota{}]
	use := fmt.Sprintf("%.0f of %.0f MiB", size/(1<<20), bound/(1<<20))
	switch {
	case bound == 0:
		return cli.Healthy(subject, "external etcd: its own alarms show whether it is full")
	case values("hub_apiserver_etcd_out_of_space")[quota{}] > 0:
		return cli.Bad(subject, "etcd full: the embedded etcd rejects writes at its quota, "+use, remedy)
	case size >= nearQuota*bound:
		return cli.Warning(subject, "the embedded etcd uses "+use, remedy)
	}
	return cli.Healthy(subject, "the embedded etcd uses "+use)
}

func (d *hubDoctor) quotas(ctx context.Context, values func(string) map[quota]float64) []cli.Finding {
	const subject = "quotas of namespaces"
	used := values("hub_apiserver_quota_used_max")
	var findings []cli.Finding
	for labels, limit := range values("hub_apiserver_quota_limit") {
		share := used[labels] / limit
		if limit == 0 || share < nearQuota {
			continue
		}
		kind, resource := labels.limit, labels.resource
		where := ""
		if kind == "objects" {
			where = d.fullest(ctx, resource)
		}
		cause := fmt.Sprintf("%.0f of %.0f %s of %s%s", used[labels], limit, kind, resource, where)
		remedy := fmt.Sprintf("delete %s, or raise --namespace-quota-%s=%s=<limit>; see %s", resource, kind, resource, version.Docs("limits.md#raise-a-quota"))
		// A write may not fit before the last byte is used.
		if share >= 1 || kind == "bytes" && share >= 0.99 {
			findings = append(findings, cli.Bad(subject, "quota reached: "+cause, remedy))
		} else {
			findings = append(findings, cli.Warning(subject, "quota nearly reached: "+cause, remedy))
		}
	}
	if len(findings) == 0 {
		return []cli.Finding{cli.Healthy(subject, "no namespace uses 80 % of a quota")}
	}
	slices.SortFunc(findings, func(a, b cli.Finding) int { return strings.Compare(a.State+a.Cause, b.State+b.Cause) })
	return findings
}

// fullest names the namespace with the most objects of a resource, if they can be counted.
func (d *hubDoctor) fullest(ctx context.Context, resource string) string {
	i := slices.IndexFunc(handover.Kinds, func(kind handover.Kind) bool {
		return kind.Resource.Resource == resource && kind.Name != handover.KindRegistration
	})
	client, err := metadata.NewForConfig(d.Config)
	if err != nil || i < 0 {
		return ""
	}
	counts, most := map[string]int{}, ""
	err = pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.Resource(handover.Kinds[i].Resource).List(ctx, options)
	}).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		namespace := item.(*metav1.PartialObjectMetadata).Namespace
		if counts[namespace]++; counts[namespace] > counts[most] {
			most = namespace
		}
		return nil
	})
	if err != nil || most == "" {
		return ""
	}
	return " in namespace " + most
}
