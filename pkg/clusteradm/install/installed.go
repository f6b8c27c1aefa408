package clusteradm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	serverContainer = "apiserver"
	// certManagerFile is the certificate of the server in the component cert-manager.
	certManagerFile = "/certs/tls.crt"
	kindClaim       = "PersistentVolumeClaim"
)

// installedHub is the server that a hub runs, with the settings that init has flags for.
type installedHub struct {
	*installedProgram
	settings hubSettings
}

// readServer returns the server that the hub runs, or nil if it has no Deployment.
func readServer(ctx context.Context, kube kubernetes.Interface) (*installedHub, error) {
	program, err := readProgram(ctx, kube, hubNamespace, serverName, serverContainer)
	if err != nil || program == nil {
		return nil, err
	}
	h := &installedHub{program, newHubSettings()}
	s := &h.settings
	s.image.image = program.image()
	s.eksAuth = program.value("eks-auth", s.eksAuth)
	s.manageRoles = program.value("irsa-manage-roles", "true") != "false"
	// Exactly as they are written: they stay, or flags replace them.
	s.arnPatterns, s.identities = program.values("auto-approved-arn-patterns"), program.values("auto-approved-csr-identities")
	s.etcdServers = program.list("etcd-servers")
	s.search = program.value("search-engine", searchEmbedded)
	s.existingOCM = strings.Contains(strings.Join(program.values(runtimeConfigFlag), ","), clusterv1.SchemeGroupVersion.String()+"=false")
	s.proxyAccounts = strings.Contains(strings.Join(program.values(runtimeConfigFlag), ","), proxyAccountsVersion+"=true")
	s.serving = ""
	switch file := program.value("tls-cert-file", ""); {
	case file == certManagerFile:
		s.serving = servingCertManager
	case file == "" && program.value("serving-certificate-secret", "") == servingSecret:
		s.serving = servingSelfSigned
	}
	drivers := program.list("registration-auth", "enabled-registration-drivers")
	if len(drivers) == 0 {
		drivers = []string{string(defaultDriver)}
	}
	if s.drivers, err = parseDrivers(drivers); err != nil {
		return nil, h.unreadable("registration-auth", err)
	}
	if s.aws() {
		arn, err := irsa.ParseARN(program.value("hub-cluster-arn", ""))
		if err != nil {
			return nil, h.unreadable("hub-cluster-arn", err)
		}
		s.arn = &arn
	}
	for _, tag := range program.list("aws-resource-tags") {
		key, value, _ := strings.Cut(tag, "=")
		if s.tags == nil {
			s.tags = map[string]string{}
		}
		s.tags[key] = value
	}
	if s.roleARN, err = roleOf(ctx, kube, hubNamespace, serverName); err != nil {
		return nil, err
	}
	claim, err := kube.CoreV1().PersistentVolumeClaims(hubNamespace).Get(ctx, serverName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if request, found := claim.Spec.Resources.Requests[corev1.ResourceStorage]; found {
		s.storageSize = request.String()
	}
	return h, nil
}

// unreadable returns the error for an argument that another command or person has written.
func (h *installedHub) unreadable(flag string, err error) error {
	return fmt.Errorf("the Deployment %s in %s has --%s=%s: %w", serverName, hubNamespace, flag, printable(h.value(flag, "")), err)
}

// keep sets to the installed value what no flag names.
func (h *hubSettings) keep(installed *hubSettings, given func(flags ...string) bool) {
	type kept struct {
		flag string
		keep func()
	}
	for _, k := range []kept{
		{"irsa-manage-roles", func() { h.manageRoles = installed.manageRoles }},
		{"eks-auth", func() { h.eksAuth = installed.eksAuth }},
		{"serving-certificates", func() { h.serving = installed.serving }},
		{"etcd-servers", func() { h.etcdServers = installed.etcdServers }},
		{"search-engine", func() { h.search = installed.search }},
		{"storage-size", func() { h.storageSize = installed.storageSize }},
		{"existing-ocm", func() { h.existingOCM = installed.existingOCM }},
		{"proxy-accounts", func() { h.proxyAccounts = installed.proxyAccounts }},
		{"auto-approved-csr-identities", func() {
			if h.csr() {
				h.identities = installed.identities
			}
		}},
		{"auto-approved-arn-patterns", func() {
			if h.aws() {
				h.arnPatterns = installed.arnPatterns
			}
		}},
		{"aws-resource-tags", func() {
			if h.aws() {
				h.tags = installed.tags
			}
		}},
		{"hub-role-arn", func() {
			if h.aws() && installed.aws() {
				h.roleARN, h.keepRole = installed.roleARN, true
			}
		}},
	} {
		if !given(k.flag) {
			k.keep()
		}
	}
}

// losses returns an error if the server would not find its data after the change. objects are the manifests for the wanted settings.
func (h *installedHub) losses(wanted *hubSettings, objects []*unstructured.Unstructured) error {
	deployment, _, err := deploymentIn(objects, serverName)
	if err != nil {
		return err
	}
	const dir = "data-dir"
	manifest := &installedProgram{arguments: parseArguments(deployment.Spec.Template.Spec.Containers[0].Args)}
	old, now := strings.Join(h.settings.etcdServers, ","), strings.Join(wanted.etcdServers, ",")
	switch {
	case old == "" && now != "":
		return fmt.Errorf("--etcd-servers=%s would lose the objects of the hub: the server stores them in the %s %s, and init does not copy them. See docs/clusteradm.md", now, kindClaim, serverName)
	case old != "" && now == "":
		return fmt.Errorf("--etcd-servers would lose the objects of the hub: the server stores them in the etcd cluster %s, and would start with an empty volume. Give --etcd-servers=%s", printable(old), printable(old))
	case old == "" && !slices.ContainsFunc(h.deployment.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == "data" && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == serverName
	}):
		return fmt.Errorf("the Deployment %s in %s does not store its data in the %s %s: change it by the means that installed it", serverName, hubNamespace, kindClaim, serverName)
	case old == "" && h.value(dir, "") != manifest.value(dir, ""):
		return fmt.Errorf("--reset would lose the objects of the hub: the server stores them in --%s=%s, not %s", dir, printable(h.value(dir, "")), manifest.value(dir, ""))
	case old == "":
		if from, to := resource.MustParse(h.settings.storageSize), resource.MustParse(wanted.storageSize); to.Cmp(from) < 0 {
			return fmt.Errorf("--storage-size=%s: the volume has %s and cannot shrink", wanted.storageSize, h.settings.storageSize)
		}
	}
	return nil
}

// reasons returns the changes of the settings that require a confirmation. objects are the manifests for the wanted ones.
func (h *installedHub) reasons(wanted *hubSettings, objects []*unstructured.Unstructured) ([]string, error) {
	var reasons []string
	changed := func(flag, from, to, effect string) {
		if from != to {
			reasons = append(reasons, fmt.Sprintf("--%s changes from %s to %s: %s", flag, printable(from), printable(to), effect))
		}
	}
	changed("etcd-servers", strings.Join(h.settings.etcdServers, ","), strings.Join(wanted.etcdServers, ","), "all must be members of the etcd cluster that has the data of the hub")
	if from, to := resource.MustParse(h.settings.storageSize), resource.MustParse(wanted.storageSize); len(wanted.etcdServers) == 0 && !from.Equal(to) {
		changed("storage-size", h.settings.storageSize, wanted.storageSize, "a volume cannot shrink again")
	}
	changed("search-engine", h.settings.search, wanted.search, "searches are incomplete until all agents have reported again")
	deployment, _, err := deploymentIn(objects, serverName)
	if err != nil {
		return nil, err
	}
	count := func(replicas *int32) string { return strconv.Itoa(int(ptr.Deref(replicas, 1))) }
	if h.deployment.Spec.Replicas != nil {
		if from, to := count(h.deployment.Spec.Replicas), count(deployment.Spec.Replicas); from != to {
			reasons = append(reasons, fmt.Sprintf("the replicas of the server change from %s to %s", from, to))
		}
	}
	return reasons, nil
}

// recognized is the end of the fields that init and join keep, or that their flags change. Other managers may have set
// them.
var recognized = []string{
	`.spec.replicas`, `.spec.resources.requests.storage`, `.data.` + kubeconfigKey,
	`.containers[name="` + serverContainer + `"].args`, `.containers[name="` + serverContainer + `"].image`,
	`.containers[name="` + agentName + `"].args`, `.containers[name="` + agentName + `"].image`,
}

// foreign returns the fields that the changes take from others, except those that the settings name if kept is true.
func foreign(changes []change, kept bool) []string {
	var reasons []string
	for _, c := range changes {
		for _, conflict := range c.conflicts {
			field, _, _ := strings.Cut(conflict, ": ")
			if kept && (slices.ContainsFunc(recognized, func(end string) bool { return strings.HasSuffix(field, end) }) || strings.Contains(field, `"].resources.`)) {
				continue
			}
			reasons = append(reasons, display(c.manifest)+": "+conflict)
		}
	}
	return reasons
}

// controllersHeld reports whether the server waits for a migration or an adoption.
func controllersHeld(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	lease, err := kube.CoordinationV1().Leases(hubNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == migrationUser, err
}
