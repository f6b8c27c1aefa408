package install

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// TestCheckVolume checks that init --wait fails before it changes anything, and otherwise warns, if no volume would be bound.
func TestCheckVolume(t *testing.T) {
	class := func(isDefault string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": isDefault}}}
	}
	volume := func(class, size string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
			Spec: corev1.PersistentVolumeSpec{StorageClassName: class, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: manifests.HubNamespace, Name: manifests.ServerName}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	for name, test := range map[string]struct {
		class   string
		objects []runtime.Object
		want    string // of the error, or empty
	}{
		"nothing":               {"", nil, "the hub has no default StorageClass"},
		"default class":         {"", []runtime.Object{class("true")}, ""},
		"no default class":      {"", []runtime.Object{class("false")}, "give --storage-class (the hub has: fast)"},
		"chosen class":          {"fast", []runtime.Object{class("false")}, ""},
		"missing class":         {"slow", []runtime.Object{class("true")}, "the hub has no slow StorageClass"},
		"volume":                {"", []runtime.Object{volume("", "10Gi")}, ""},
		"small volume":          {"", []runtime.Object{volume("", "9Gi")}, "10Gi"},
		"volume of the class":   {"local", []runtime.Object{volume("local", "20Gi")}, ""},
		"volume of other class": {"", []runtime.Object{volume("local", "20Gi")}, "default StorageClass"},
		"bound":                 {"", []runtime.Object{claim}, ""},
	} {
		var warnings bytes.Buffer
		i := newInitializing(cli.Environment{IOStreams: genericiooptions.IOStreams{ErrOut: &warnings}})
		i.Clients, i.hub.storageClass = &cli.Clients{Kube: fake.NewClientset(test.objects...)}, test.class
		if err := i.checkVolume(t.Context()); err != nil || !strings.Contains(warnings.String(), test.want) || (test.want == "") != (warnings.Len() == 0) {
			t.Errorf("checkVolume() without --wait with %s = %v and %q, want no error, and a warning with %q", name, err, warnings.String(), test.want)
		}
		i.Wait = true
		if err := i.checkVolume(t.Context()); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("checkVolume() with %s = %v, want %q", name, err, test.want)
		}
	}
}
