package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	managedartifacts "open-cluster-management.io/hub-apiserver/artifacts/agent/managed"
)

const (
	// crdHashAnnotation marks a CRD that this agent created. Its value is a hash of the source.
	crdHashAnnotation = "work.open-cluster-management.io/crd-hash"
	// crdTimeout bounds the wait until the managed cluster serves the CRD. It is generous, because
	// the cluster may be starting too. After the timeout, the agent exits with an error.
	crdTimeout = 5 * time.Minute
	crdPoll    = 200 * time.Millisecond
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// ensureCRD creates or updates the CRD of AppliedManifestWorks, and waits until the managed cluster
// serves it. It does not change a CRD that it did not create.
func ensureCRD(ctx context.Context, client dynamic.Interface) error {
	wanted := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(managedartifacts.AppliedManifestWorkCRD, &wanted.Object); err != nil {
		return fmt.Errorf("embedded CRD: %w", err)
	}
	sum := sha256.Sum256(managedartifacts.AppliedManifestWorkCRD)
	hash := hex.EncodeToString(sum[:])
	wanted.SetAnnotations(labels.Merge(wanted.GetAnnotations(), map[string]string{crdHashAnnotation: hash}))

	crds := client.Resource(crdResource)
	var last error
	err := wait.PollUntilContextTimeout(ctx, crdPoll, crdTimeout, true, func(ctx context.Context) (bool, error) {
		live, err := crds.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			live, err = crds.Create(ctx, wanted, metav1.CreateOptions{})
		} else if err == nil {
			if made, ours := live.GetAnnotations()[crdHashAnnotation]; ours && made != hash {
				updated := wanted.DeepCopy()
				updated.SetResourceVersion(live.GetResourceVersion())
				live, err = crds.Update(ctx, updated, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			if last == nil || last.Error() != err.Error() {
				klog.FromContext(ctx).Info("The CustomResourceDefinition of AppliedManifestWorks does not exist yet", "err", err)
			}
			last = err
			return false, nil
		}
		last = fmt.Errorf("it is not established")
		return established(live), nil
	})
	if err != nil {
		return fmt.Errorf("CRD %s on the managed cluster: %w", wanted.GetName(), cmp.Or(last, err))
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, ok := entry.(map[string]any)
		if ok && condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}
