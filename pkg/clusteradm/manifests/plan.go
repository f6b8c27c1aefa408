package manifests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// ClusterClaims is the name of the CustomResourceDefinition of ClusterClaims.
const ClusterClaims = "clusterclaims.cluster.open-cluster-management.io"

// Change is what a command does to an object of a cluster.
type Change struct {
	// Manifest is the object to apply, or to delete if Remove is true.
	Manifest *unstructured.Unstructured
	Remove   bool
	// Live is the object before the change, or nil if it does not exist.
	Live *unstructured.Unstructured
	// Conflicts are the changed fields that others have set, with their names.
	Conflicts []string
	// result is the object after the change, or nil if it is deleted.
	result *unstructured.Unstructured
}

func (c *Change) none() bool {
	return c.Live != nil && c.result != nil && equality.Semantic.DeepEqual(settable(c.Live), settable(c.result))
}

// Plan returns the changes that apply the objects. It writes nothing.
func (a *Applier) Plan(ctx context.Context, objects ...*unstructured.Unstructured) ([]Change, error) {
	changes := make([]Change, 0, len(objects))
	for _, object := range objects {
		c, err := a.planOne(ctx, object)
		if err != nil {
			return nil, fmt.Errorf("apply %s: %w", Display(object), err)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

func (a *Applier) planOne(ctx context.Context, object *unstructured.Unstructured) (Change, error) {
	c := Change{Manifest: object, result: object}
	resource, err := a.resource(object)
	if err != nil {
		return c, err
	}
	live, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return c, cli.IgnoreNotFound(err)
	}
	c.Live = live
	namespace, claims := object.GetKind() == KindNamespace, object.GetKind() == KindCRD && object.GetName() == ClusterClaims
	own := func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == cli.FieldManager }
	switch {
	case namespace && live.GetDeletionTimestamp() != nil:
		return c, errors.New("the namespace is being deleted; try again after the deletion")
	case namespace, claims && !slices.ContainsFunc(live.GetManagedFields(), own):
		// An existing namespace stays unchanged, because clusteradm must not remove it later. So does the definition of the
		// upstream operator or of another agent.
		c.result = live
		return c, nil
	}
	options := metav1.ApplyOptions{FieldManager: cli.FieldManager, DryRun: []string{metav1.DryRunAll}}
	c.result, err = resource.Apply(ctx, object.GetName(), object, options)
	if apierrors.IsConflict(err) {
		c.Conflicts = conflictsOf(err)
		options.Force = true
		c.result, err = resource.Apply(ctx, object.GetName(), object, options)
	}
	if err == nil && c.none() {
		// Defaults can make equal what server-side apply compares without them.
		c.Conflicts = nil
	}
	return c, err
}

// conflictsOf returns the fields of a conflict of server-side apply that others than clusteradm have set.
func conflictsOf(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict && !strings.HasPrefix(cause.Message, fmt.Sprintf("conflict with %q", cli.FieldManager)) {
			out = append(out, cli.Printable(cause.Field+": "+cause.Message))
		}
	}
	return out
}

// WriteDiff prints the changes as unified diffs of YAML, without the content of Secrets.
func WriteDiff(out io.Writer, changes []Change) error {
	for _, c := range changes {
		if c.none() {
			continue
		}
		name := Display(c.Manifest)
		if c.Manifest.GetKind() == KindSecret {
			what := "changes"
			if c.Live == nil {
				what = "is created"
			}
			if _, err := fmt.Fprintf(out, "%s %s; its content is not printed\n", name, what); err != nil {
				return err
			}
			continue
		}
		old, err := yamlLines(settable(c.Live))
		current, failure := yamlLines(settable(c.result))
		if err := cmp.Or(err, failure); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := difflib.WriteUnifiedDiff(out, difflib.UnifiedDiff{A: old, B: current, FromFile: "live " + name, ToFile: "new " + name, Context: 3}); err != nil {
			return err
		}
	}
	return nil
}

// yamlLines returns the lines of an object. Unlike difflib.SplitLines, it adds no empty line.
func yamlLines(object map[string]any) ([]string, error) {
	if object == nil {
		return nil, nil
	}
	content, err := sigsyaml.Marshal(object)
	return slices.Collect(strings.Lines(string(content))), err
}

// settable returns the fields of an object that the API server does not set, or nil without an object.
func settable(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return nil
	}
	object = object.DeepCopy()
	delete(object.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	return object.Object
}
