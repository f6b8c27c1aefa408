package handover

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// CopyWorkers is the number of objects that are copied at the same time.
const CopyWorkers = 16

var imports = migrationv1alpha1.SchemeGroupVersion.WithResource("imports")

// Import sends an import to the server.
func Import(ctx context.Context, client dynamic.Interface, spec map[string]any, dryRun ...string) (imported *unstructured.Unstructured, err error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": migrationv1alpha1.SchemeGroupVersion.String(), "kind": "Import", "spec": spec,
	}}
	err = cli.Persist(ctx, func(ctx context.Context) (err error) {
		imported, err = client.Resource(imports).Create(ctx, request, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun})
		return err
	})
	return imported, err
}

// ImportObjects imports objects. It calls report with each object that the server refuses, or would store with a
// difference. If adopt is true, the objects are those of another hub.
func ImportObjects(ctx context.Context, client dynamic.Interface, objects []*unstructured.Unstructured, adopt bool, dryRun []string, report func(object *unstructured.Unstructured, problem string)) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(CopyWorkers)
	for _, object := range objects {
		group.Go(func() error {
			spec := map[string]any{"object": object.Object}
			if adopt {
				spec["adopt"] = true
			}
			imported, err := Import(ctx, client, spec, dryRun...)
			problem := ""
			switch {
			case Refused(err) || occupied(err):
				problem = err.Error()
			case err != nil:
				return fmt.Errorf("import %s: %w", manifests.Display(object), err)
			default:
				stored, _, _ := unstructured.NestedMap(imported.Object, "status", "object")
				if lost := Differences(Comparable(object.Object), Comparable(stored)); len(lost) > 0 {
					problem = "the server would change " + cli.Some(lost)
				}
			}
			if problem != "" {
				mu.Lock()
				defer mu.Unlock()
				report(object, problem)
			}
			return nil
		})
	}
	return group.Wait()
}

// Refused reports whether a server does not accept an object.
func Refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// occupied reports whether an import conflicts with a stored object. Other conflicts concern all imports.
func occupied(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsConflict(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind != imports.Resource
}
