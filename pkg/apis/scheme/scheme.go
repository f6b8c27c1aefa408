// Package scheme contains the Scheme of all types that the server serves, and its codecs.
package scheme

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	accessinstall "open-cluster-management.io/hub-apiserver/pkg/apis/access/install"
	addoninstall "open-cluster-management.io/hub-apiserver/pkg/apis/addon/install"
	authenticationinstall "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/install"
	clusterinstall "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/install"
	clusterviewinstall "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/install"
	migrationinstall "open-cluster-management.io/hub-apiserver/pkg/apis/migration/install"
	proxyinstall "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/install"
	rbacinstall "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/install"
	registerinstall "open-cluster-management.io/hub-apiserver/pkg/apis/register/install"
	searchinstall "open-cluster-management.io/hub-apiserver/pkg/apis/search/install"
	workinstall "open-cluster-management.io/hub-apiserver/pkg/apis/work/install"
)

var (
	// Scheme contains the internal and versioned types that the server serves.
	Scheme = runtime.NewScheme()
	// Codecs encodes and decodes the types of Scheme.
	Codecs = serializer.NewCodecFactory(Scheme)
	// ParameterCodec converts query parameters to options objects.
	ParameterCodec = runtime.NewParameterCodec(Scheme)
)

func init() {
	accessinstall.Install(Scheme)
	addoninstall.Install(Scheme)
	authenticationinstall.Install(Scheme)
	clusterinstall.Install(Scheme)
	clusterviewinstall.Install(Scheme)
	migrationinstall.Install(Scheme)
	proxyinstall.Install(Scheme)
	rbacinstall.Install(Scheme)
	registerinstall.Install(Scheme)
	searchinstall.Install(Scheme)
	workinstall.Install(Scheme)

	// The generic API server serves these types in every group, and discovery in the unversioned group.
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(Scheme, unversioned)
	Scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{},
		&metav1.APIVersions{},
		&metav1.APIGroupList{},
		&metav1.APIGroup{},
		&metav1.APIResourceList{},
	)
}
