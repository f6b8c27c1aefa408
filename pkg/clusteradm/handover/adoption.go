package handover

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

const (
	// AdoptionState is the ConfigMap that records an adoption. With it, an interrupted adoption continues.
	AdoptionState = "hub-adoption"
	// AdoptionEpoch and AdoptionPhase are keys of that ConfigMap.
	AdoptionEpoch = "epoch"
	AdoptionPhase = "phase"
	// AdoptionDone is the last phase.
	AdoptionDone = "Done"
)

// Adoption returns the record of an adoption by the hub, or nil if there is none that the caller may read.
func Adoption(ctx context.Context, kube kubernetes.Interface) (*corev1.ConfigMap, error) {
	state, err := cli.Optional(kube.CoreV1().ConfigMaps(manifests.HubNamespace).Get(ctx, AdoptionState, metav1.GetOptions{}))
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return state, err
}

// AdoptedEpoch returns the epoch that the hub has by an adoption, or zero, and a finding for a record that is not valid.
func AdoptedEpoch(ctx context.Context, kube kubernetes.Interface) (rehoming.Epoch, []cli.Finding, error) {
	state, err := Adoption(ctx, kube)
	if err != nil || state == nil {
		return rehoming.Epoch{}, nil, err
	}
	epoch, err := rehoming.ParseEpoch(state.Data[AdoptionEpoch])
	if err != nil {
		return rehoming.Epoch{}, []cli.Finding{cli.Warning("ConfigMap "+AdoptionState+" in "+manifests.HubNamespace, "it is ignored: "+err.Error(), "")}, nil
	}
	return epoch, nil, nil
}

// OnlyRequests reports whether a ManagedCluster was never accepted. Anybody with a bootstrap token creates such clusters, so
// they do not show that the hub is in use. An adoption replaces those of its clusters.
func OnlyRequests(cluster *unstructured.Unstructured) bool {
	for _, field := range [][]string{{"spec", "hubAcceptsClient"}, {"status", "acceptance", "accepted"}, {"status", "acceptance", "everAccepted"}} {
		if accepted, _, _ := unstructured.NestedBool(cluster.Object, field...); accepted {
			return false
		}
	}
	return true
}
