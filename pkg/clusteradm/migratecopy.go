package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// copyWorkers is the number of objects that are copied at the same time.
const copyWorkers = 16

var imports = migrationv1alpha1.SchemeGroupVersion.WithResource("imports")

func importRequest(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": migrationv1alpha1.SchemeGroupVersion.String(), "kind": "Import", "spec": spec,
	}}
}

// pending returns the kinds that the hub does not forward to the server yet.
func (m *migration) pending(ctx context.Context) ([]*customKind, error) {
	var pending []*customKind
	for _, kind := range m.kinds {
		forwarded, err := m.forwarded(ctx, kind.version)
		if err != nil {
			return nil, err
		}
		if !forwarded {
			pending = append(pending, kind)
		}
	}
	return pending, nil
}

// discard removes the objects of earlier attempts from the server.
func (m *migration) discard(ctx context.Context, kinds []*customKind) error {
	discarded := []map[string]any{}
	add := func(group, version, kind string) {
		discarded = append(discarded, map[string]any{"group": group, "version": version, "kind": kind})
	}
	for _, kind := range kinds {
		add(kind.version.Group, kind.version.Version, kind.kind)
	}
	if forwarded, err := m.forwarded(ctx, registerv1alpha1.SchemeGroupVersion); err != nil {
		return err
	} else if !forwarded {
		add(registerv1alpha1.GroupName, registerv1alpha1.SchemeGroupVersion.Version, "ManagedClusterRegistration")
	}
	for _, kind := range discarded {
		if err := persist(ctx, func(ctx context.Context) error {
			_, err := m.client.Resource(imports).Create(ctx, importRequest(map[string]any{"discard": kind}), metav1.CreateOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("discard %s: %w", kind["kind"], err)
		}
	}
	return nil
}

// copyToServer copies the objects of the kinds to the server. If dryRun is true, the server only checks them. It returns
// a finding for each object that the server refuses, or would store with a difference.
func (m *migration) copyToServer(ctx context.Context, kinds []*customKind, dryRun bool) (map[string]int, []finding, error) {
	counts := map[string]int{}
	var mu sync.Mutex
	epoch, findings, err := adoptedEpoch(ctx, m.kube)
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range kinds {
		objects, err := listAll(ctx, m.client, kind.served())
		if err != nil {
			return nil, nil, err
		}
		if kind.kind == kindManagedCluster {
			for _, object := range objects {
				findings = append(findings, distrust(object, epoch)...)
			}
		}
		counts[kind.kind] = len(objects)
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(copyWorkers)
		for _, object := range objects {
			group.Go(func() error {
				problem, err := importObject(ctx, m.client, object, map[string]any{"object": object.Object}, dryRun)
				if err != nil {
					return err
				}
				if problem != "" {
					mu.Lock()
					defer mu.Unlock()
					findings = append(findings, bad(display(object), problem, "change or delete the object"))
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(findings, func(a, b finding) int { return strings.Compare(a.Subject, b.Subject) })
	return counts, findings, nil
}

// requestedByAnnotation names the creator of a ManagedCluster, who may request its first certificate.
const requestedByAnnotation = "register.open-cluster-management.io/requested-by"

// distrust removes the annotations by which the server and agents would believe what everyone with permission to update a
// ManagedCluster can write while a CustomResourceDefinition serves it: its creator, and another epoch than that of the
// adoption by this hub.
func distrust(cluster *unstructured.Unstructured, epoch rehoming.Epoch) []finding {
	annotations := cluster.GetAnnotations()
	delete(annotations, requestedByAnnotation)
	var findings []finding
	if text, found := annotations[rehoming.EpochAnnotation]; found && text != epoch.String() {
		delete(annotations, rehoming.EpochAnnotation)
		findings = append(findings, warning(display(cluster), fmt.Sprintf("annotation %s is not copied, because the epoch of this hub is %q", rehoming.EpochAnnotation, epoch),
			"if this hub has adopted the cluster, restore the ConfigMap "+adoptionState+" in "+hubNamespace+", and run the command again"))
	}
	cluster.SetAnnotations(annotations)
	return findings
}

// importObject imports an object. If the server refuses it, or would store it with a difference, importObject returns the
// problem.
func importObject(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured, spec map[string]any, dryRun bool) (string, error) {
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var imported *unstructured.Unstructured
	err := persist(ctx, func(ctx context.Context) (err error) {
		imported, err = client.Resource(imports).Create(ctx, importRequest(spec), options)
		return err
	})
	switch {
	case refused(err) || occupied(err):
		return err.Error(), nil
	case err != nil:
		return "", fmt.Errorf("import %s: %w", display(object), err)
	}
	stored, _, err := unstructured.NestedMap(imported.Object, "status", "object")
	if err != nil {
		return "", fmt.Errorf("import %s: %w", display(object), err)
	}
	if lost := differences(comparable(object.Object), comparable(stored)); len(lost) > 0 {
		return "the server would change " + strings.Join(lost[:min(len(lost), maxListed)], ", "), nil
	}
	return "", nil
}

// occupied reports whether an import conflicts with a stored object. Other conflicts concern all imports.
func occupied(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsConflict(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind != imports.Resource
}

// comparable returns the parts of an object that both sides must have: everything except what each side sets itself.
func comparable(object map[string]any) map[string]any {
	out := maps.Clone(object)
	if metadata, ok := out["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range []string{"resourceVersion", "managedFields", "selfLink", "generation", "finalizers"} {
			delete(metadata, field)
		}
		out["metadata"] = metadata
	}
	return out
}

// differences returns the paths of the values in a that b does not have. Empty values equal absent ones.
func differences(a, b any) []string {
	return appendDifferences(nil, "", a, b)
}

func appendDifferences(paths []string, path string, a, b any) []string {
	if empty(a) || sameScalar(a, b) {
		return paths
	}
	switch a := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok {
			return append(paths, path)
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			paths = appendDifferences(paths, path+"."+key, a[key], other[key])
		}
		return paths
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return append(paths, path)
		}
		for i := range a {
			paths = appendDifferences(paths, fmt.Sprintf("%s[%d]", path, i), a[i], other[i])
		}
		return paths
	}
	return append(paths, path)
}

func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case bool:
		return !value
	case map[string]any:
		for _, item := range value {
			if !empty(item) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return value == int64(0) || value == float64(0)
}

// sameScalar reports whether two values are equal, or different spellings of a time, a duration or a quantity.
func sameScalar(a, b any) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && (a == b || sameTime(a, b) || sameDuration(a, b) || sameQuantity(a, b))
	case bool, int64, float64:
		return a == b
	}
	return false
}

func sameTime(a, b string) bool {
	x, err := time.Parse(time.RFC3339, a)
	if err != nil {
		return false
	}
	y, err := time.Parse(time.RFC3339, b)
	return err == nil && x.Equal(y)
}

func sameDuration(a, b string) bool {
	x, err := time.ParseDuration(a)
	if err != nil {
		return false
	}
	y, err := time.ParseDuration(b)
	return err == nil && x == y
}

func sameQuantity(a, b string) bool {
	x, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(b)
	return err == nil && x.Cmp(y) == 0
}

// verify compares the server with the CustomResourceDefinitions, while the hub forwards to the server.
func (m *migration) verify(ctx context.Context) ([]finding, error) {
	epoch, _, err := adoptedEpoch(ctx, m.kube)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, kind := range m.kinds {
		served, err := listAll(ctx, m.client, kind.served())
		if err != nil {
			return nil, err
		}
		kept, err := listAll(ctx, m.client, kind.kept())
		if err != nil {
			return nil, err
		}
		for name, object := range served {
			if kept[name] == nil {
				findings = append(findings, bad(display(object), "only the server has it", ""))
			}
		}
		for name, object := range kept {
			other := served[name]
			if other == nil {
				findings = append(findings, bad(display(object), "only the CustomResourceDefinition has it", ""))
				continue
			}
			if kind.kind == kindManagedCluster {
				distrust(object, epoch)
			}
			expected := comparable(object.Object)
			expected["apiVersion"] = kind.version.String()
			if lost := differences(expected, comparable(other.Object)); len(lost) > 0 {
				findings = append(findings, bad(display(object), "the sides differ in "+strings.Join(lost[:min(len(lost), maxListed)], ", "), ""))
			}
		}
	}
	return findings, nil
}
