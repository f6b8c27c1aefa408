package migrate

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

const (
	// automanagedLabel marks an APIService that the hub keeps for CustomResourceDefinitions.
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// localGroupPriority and localVersionPriority are the priorities that the hub gives to such an APIService.
	localGroupPriority, localVersionPriority = 1000, 100
)

// forward makes the hub forward the migrated versions to the server. The manifests are those of an installation, and
// the certificate authority that of an APIService that works already.
func (m *migration) forward(ctx context.Context) error {
	objects, err := manifests.Read("apiservice")
	if err != nil {
		return err
	}
	working, err := m.APIServices.Get(ctx, cli.APIServiceName(migrationv1alpha1.SchemeGroupVersion), metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The installation may use cert-manager, or another Secret.
	annotations := maps.Clone(working.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	for _, version := range handover.SwitchedVersions() {
		wanted := &apiregistrationv1.APIService{}
		if _, err := manifests.Find(objects, cli.KindAPIService, cli.APIServiceName(version), wanted); err != nil {
			return err
		}
		wanted.Annotations = annotations
		wanted.Spec.Service, wanted.Spec.CABundle = working.Spec.Service, working.Spec.CABundle
		wanted.Spec.InsecureSkipTLSVerify = working.Spec.InsecureSkipTLSVerify
		if err := m.setAPIService(ctx, wanted); err != nil {
			return err
		}
	}
	for _, version := range handover.SwitchedVersions() {
		if err := m.WaitForAPIService(ctx, cli.APIServiceName(version), cli.Unavailable); err != nil {
			return err
		}
	}
	return nil
}

// setAPIService creates an APIService, or replaces its labels, annotations and spec.
func (m *migration) setAPIService(ctx context.Context, wanted *apiregistrationv1.APIService) error {
	return cli.Prefix(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := m.APIServices.Get(ctx, wanted.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = m.APIServices.Create(ctx, wanted, metav1.CreateOptions{FieldManager: cli.FieldManager})
			return err
		}
		if err != nil {
			return err
		}
		current.Labels, current.Annotations, current.Spec = wanted.Labels, wanted.Annotations, wanted.Spec
		_, err = m.APIServices.Update(ctx, current, metav1.UpdateOptions{FieldManager: cli.FieldManager})
		return err
	}), "APIService %s", wanted.Name)
}

// serveLocally makes the hub serve the migrated versions from CustomResourceDefinitions, as far as it has them, and
// removes the other APIServices.
func (m *migration) serveLocally(ctx context.Context) error {
	local := map[schema.GroupVersion]bool{}
	for _, kind := range m.kinds {
		for _, version := range handover.Versions(kind.CRD) {
			if version.Served && version.Name != handover.KeptVersion {
				local[schema.GroupVersion{Group: kind.Resource.Group, Version: version.Name}] = true
			}
		}
	}
	for _, version := range handover.SwitchedVersions() {
		forwarded, err := m.Forwards(ctx, version)
		name := cli.APIServiceName(version)
		switch {
		case err != nil || !forwarded:
		case !local[version]:
			err = cli.IgnoreNotFound(m.APIServices.Delete(ctx, name, metav1.DeleteOptions{}))
		default:
			err = m.setAPIService(ctx, &apiregistrationv1.APIService{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{automanagedLabel: "true"}},
				Spec: apiregistrationv1.APIServiceSpec{
					Group: version.Group, Version: version.Version, GroupPriorityMinimum: localGroupPriority, VersionPriority: localVersionPriority,
				},
			})
		}
		if err != nil {
			return err
		}
	}
	for _, kind := range m.kinds {
		if err := m.WaitForAPIService(ctx, cli.APIServiceName(kind.Version), cli.NotLocal); err != nil {
			return err
		}
	}
	return nil
}
