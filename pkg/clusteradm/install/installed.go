package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	// certManagerFile is the certificate of the server in the component cert-manager.
	certManagerFile = "/certs/tls.crt"
	kindClaim       = "PersistentVolumeClaim"
)

type installedHub struct {
	*program.Installed
	settings hubSettings
}

// readServer returns the server that the hub runs, or nil if it has no Deployment.
func readServer(ctx context.Context, kube kubernetes.Interface) (*installedHub, error) {
	found, err := program.Read(ctx, kube, manifests.HubNamespace, manifests.ServerName, program.ServerContainer)
	if err != nil || found == nil {
		return nil, err
	}
	h := &installedHub{found, newHubSettings()}
	s := &h.settings
	s.image.Image = found.Image()
	s.eksAuth = found.Value("eks-auth", s.eksAuth)
	s.manageRoles = found.Value("irsa-manage-roles", "true") != "false"
	// Exactly as they are written: they stay, or flags replace them.
	s.arnPatterns, s.identities = found.Values("auto-approved-arn-patterns"), found.Values("auto-approved-csr-identities")
	s.etcdServers = found.List("etcd-servers")
	s.search = found.Value("search-engine", searchEmbedded)
	versions := strings.Join(found.Values(program.RuntimeConfigFlag), ",")
	s.existingOCM = strings.Contains(versions, clusterv1.SchemeGroupVersion.String()+"=false")
	s.proxyAccounts = strings.Contains(versions, proxyv1alpha1.SchemeGroupVersion.String()+"=true")
	s.serving = ""
	switch file := found.Value("tls-cert-file", ""); {
	case file == certManagerFile:
		s.serving = servingCertManager
	case file == "" && found.Value("serving-certificate-secret", "") == manifests.ServingSecret:
		s.serving = servingSelfSigned
	}
	drivers := found.List("registration-auth", "enabled-registration-drivers")
	if len(drivers) == 0 {
		drivers = []string{string(program.DefaultDriver)}
	}
	if s.drivers, err = program.ParseDrivers(drivers); err != nil {
		return nil, h.Unreadable("registration-auth", err)
	}
	if s.aws() {
		s.arn = &irsa.ARN{}
		if *s.arn, err = irsa.ParseARN(found.Value("hub-cluster-arn", "")); err != nil {
			return nil, h.Unreadable("hub-cluster-arn", err)
		}
	}
	s.tags = map[string]string{}
	for _, tag := range found.List("aws-resource-tags") {
		key, value, _ := strings.Cut(tag, "=")
		s.tags[key] = value
	}
	if s.roleARN, err = program.RoleOf(ctx, kube, manifests.HubNamespace, manifests.ServerName); err != nil {
		return nil, err
	}
	claim, err := kube.CoreV1().PersistentVolumeClaims(manifests.HubNamespace).Get(ctx, manifests.ServerName, metav1.GetOptions{})
	if cli.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if request, found := claim.Spec.Resources.Requests[corev1.ResourceStorage]; found {
		s.storageSize = request.String()
	}
	s.storageClass = ptr.Deref(claim.Spec.StorageClassName, "")
	return h, nil
}

// checkVolume reports that no volume would be bound to the claim of the server: as an error if the command would wait for it.
func (i *initializing) checkVolume(ctx context.Context) error {
	if i.apiserver != program.Deploy || len(i.hub.etcdServers) > 0 {
		return nil
	}
	claim, err := cli.Optional(i.Kube.CoreV1().PersistentVolumeClaims(manifests.HubNamespace).Get(ctx, manifests.ServerName, metav1.GetOptions{}))
	if err != nil || claim != nil { // the wait for the Deployment reports a claim that is not bound
		return err
	}
	classes, err := i.Kube.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	volumes, failed := i.Kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err := cmp.Or(err, failed); apierrors.IsForbidden(err) {
		return nil
	} else if err != nil {
		return err
	}
	class, size, names := i.hub.storageClass, resource.MustParse(i.hub.storageSize), []string{}
	for _, c := range classes.Items {
		if names = append(names, c.Name); c.Name == class || class == "" && (c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true") {
			return nil
		}
	}
	for _, v := range volumes.Items {
		mine := ptr.Deref(v.Spec.ClaimRef, corev1.ObjectReference{Namespace: manifests.HubNamespace, Name: manifests.ServerName})
		if mine.Namespace == manifests.HubNamespace && mine.Name == manifests.ServerName && v.Status.Phase == corev1.VolumeAvailable && v.Spec.StorageClassName == class && v.Spec.Capacity.Storage().Cmp(size) >= 0 {
			return nil
		}
	}
	problem := fmt.Errorf("the %s %s would not be bound: the hub has no %s, and no available PersistentVolume of that class with %s. Create one, or give --storage-class (the hub has: %s) or --etcd-servers. See %s",
		kindClaim, manifests.ServerName, cmp.Or(class, "default")+" StorageClass", i.hub.storageSize, cli.Some(names), version.Docs("install.md#volumes"))
	if i.Wait && !i.DryRun {
		return problem
	}
	i.Warn("%v", problem)
	return nil
}

// keep sets to the installed value what no flag names.
func (h *hubSettings) keep(installed *hubSettings, given func(flags ...string) bool) {
	keep := func(flag string, applies bool, set func()) {
		if applies && !given(flag) {
			set()
		}
	}
	keep("irsa-manage-roles", true, func() { h.manageRoles = installed.manageRoles })
	keep("eks-auth", true, func() { h.eksAuth = installed.eksAuth })
	keep("serving-certificates", true, func() { h.serving = installed.serving })
	keep("etcd-servers", true, func() { h.etcdServers = installed.etcdServers })
	keep("search-engine", true, func() { h.search = installed.search })
	keep("storage-size", true, func() { h.storageSize = installed.storageSize })
	keep("storage-class", true, func() { h.storageClass = installed.storageClass })
	keep("existing-ocm", true, func() { h.existingOCM = installed.existingOCM })
	keep("proxy-accounts", true, func() { h.proxyAccounts = installed.proxyAccounts })
	keep("auto-approved-csr-identities", h.csr(), func() { h.identities = installed.identities })
	keep("auto-approved-arn-patterns", h.aws(), func() { h.arnPatterns = installed.arnPatterns })
	keep("aws-resource-tags", h.aws(), func() { h.tags = installed.tags })
	keep("hub-role-arn", h.aws() && installed.aws(), func() { h.roleARN, h.keepRole = installed.roleARN, true })
}

// losses returns an error if the server would not find its data after the change. objects are the manifests for the wanted settings.
func (h *installedHub) losses(wanted *hubSettings, objects []*unstructured.Unstructured) error {
	manifest, err := program.In(objects, manifests.ServerName, program.ServerContainer)
	if err != nil {
		return err
	}
	const dir = "data-dir"
	old, now := strings.Join(h.settings.etcdServers, ","), strings.Join(wanted.etcdServers, ",")
	switch {
	case old == "" && now != "":
		return fmt.Errorf("--etcd-servers=%s would lose the objects of the hub: the server stores them in the %s %s, and init does not copy them. See %s", now, kindClaim, manifests.ServerName, version.Docs("clusteradm.md#change-an-installed-hub"))
	case old != "" && now == "":
		return fmt.Errorf("--etcd-servers would lose the objects of the hub: the server stores them in the etcd cluster %s, and would start with an empty volume. Give --etcd-servers=%s", cli.Printable(old), cli.Printable(old))
	case old == "" && !slices.ContainsFunc(h.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == "data" && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == manifests.ServerName
	}):
		return fmt.Errorf("the Deployment %s in %s does not store its data in the %s %s: change it by the means that installed it", manifests.ServerName, manifests.HubNamespace, kindClaim, manifests.ServerName)
	case old == "" && h.Value(dir, "") != manifest.Value(dir, ""):
		return fmt.Errorf("--reset would lose the objects of the hub: the server stores them in --%s=%s, not %s", dir, cli.Printable(h.Value(dir, "")), manifest.Value(dir, ""))
	case old == "" && h.settings.storageClass != "" && h.settings.storageClass != wanted.storageClass:
		return fmt.Errorf("--storage-class=%s: the volume has the StorageClass %s, which cannot change. If it is not bound, stop the server, delete the %s %s and run the command again",
			wanted.storageClass, cli.Printable(h.settings.storageClass), kindClaim, manifests.ServerName)
	case old == "":
		if from, to := resource.MustParse(h.settings.storageSize), resource.MustParse(wanted.storageSize); to.Cmp(from) < 0 {
			return fmt.Errorf("--storage-size=%s: the volume has %s and cannot shrink", wanted.storageSize, h.settings.storageSize)
		}
	}
	return nil
}

// reasons returns the changes of the settings that require a confirmation. objects are the manifests for the wanted ones.
func (h *installedHub) reasons(wanted *hubSettings, objects []*unstructured.Unstructured) []string {
	var reasons []string
	changed := func(flag, from, to, effect string) {
		if from != to {
			reasons = append(reasons, fmt.Sprintf("--%s changes from %s to %s: %s", flag, cli.Printable(from), cli.Printable(to), effect))
		}
	}
	changed("etcd-servers", strings.Join(h.settings.etcdServers, ","), strings.Join(wanted.etcdServers, ","), "all must be members of the etcd cluster that has the data of the hub")
	if from, to := resource.MustParse(h.settings.storageSize), resource.MustParse(wanted.storageSize); len(wanted.etcdServers) == 0 && !from.Equal(to) {
		changed("storage-size", h.settings.storageSize, wanted.storageSize, "a volume cannot shrink again")
	}
	const snapshots = "snapshot-interval"
	if manifest, err := program.In(objects, manifests.ServerName, program.ServerContainer); err == nil && manifest.Value(snapshots, "") != h.Value(snapshots, "") {
		reasons = append(reasons, fmt.Sprintf("--%s=%s is removed: the server saves no more snapshots", snapshots, cli.Printable(h.Value(snapshots, ""))))
	}
	changed("search-engine", h.settings.search, wanted.search, "searches are incomplete until all agents have reported again")
	return append(reasons, h.ReplicasChange(objects, "server")...)
}
