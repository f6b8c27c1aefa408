package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	kindSecret = "Secret"
	// clusterClaims is the name of the CustomResourceDefinition of ClusterClaims.
	clusterClaims = "clusterclaims.cluster.open-cluster-management.io"
)

// change is what a command does to an object of a cluster.
type change struct {
	// manifest is the object to apply, or to delete if remove is true.
	manifest *unstructured.Unstructured
	remove   bool
	// live and result are the object before and after the change, or nil if it does not exist.
	live, result *unstructured.Unstructured
	// conflicts are the changed fields that others have set, with their names.
	conflicts []string
}

func (c *change) none() bool {
	return c.live != nil && c.result != nil && sameContent(c.live, c.result)
}

// plan returns the changes that apply the objects. It writes nothing.
func (i *installer) plan(ctx context.Context, objects ...*unstructured.Unstructured) ([]change, error) {
	changes := make([]change, 0, len(objects))
	for _, object := range objects {
		c, err := i.planOne(ctx, object)
		if err != nil {
			return nil, fmt.Errorf("apply %s: %w", display(object), err)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

func (i *installer) planOne(ctx context.Context, object *unstructured.Unstructured) (change, error) {
	c := change{manifest: object, result: object}
	resource, err := i.resource(object)
	if err != nil {
		return c, err
	}
	live, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return c, nil
	case err != nil:
		return c, err
	}
	c.live = live
	if object.GetKind() == kindNamespace {
		if live.GetDeletionTimestamp() != nil {
			return c, errors.New("the namespace is being deleted; try again after the deletion")
		}
		// An existing namespace stays unchanged, because clusteradm must not remove it later.
		c.result = live
		return c, nil
	}
	if object.GetKind() == kindCRD && object.GetName() == clusterClaims && !slices.ContainsFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == fieldManager
	}) {
		// The definition of the upstream operator, or of another agent, stays unchanged.
		c.result = live
		return c, nil
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}}
	c.result, err = resource.Apply(ctx, object.GetName(), object, options)
	if apierrors.IsConflict(err) {
		c.conflicts = conflictsOf(err)
		options.Force = true
		c.result, err = resource.Apply(ctx, object.GetName(), object, options)
	}
	if err == nil && c.none() {
		// Defaults can make equal what server-side apply compares without them.
		c.conflicts = nil
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
		if cause.Type != metav1.CauseTypeFieldManagerConflict || strings.HasPrefix(cause.Message, fmt.Sprintf("conflict with %q", fieldManager)) {
			continue
		}
		out = append(out, printable(cause.Field+": "+cause.Message))
	}
	return out
}

// write makes the changes, and prints the result of each.
func (i *installer) write(ctx context.Context, changes []change) error {
	for _, c := range changes {
		outcome := "unchanged"
		var err error
		switch {
		case c.remove:
			err = i.remove(ctx, c.manifest)
		case c.live == nil:
			outcome, err = "created", i.applyOne(ctx, c.manifest)
		case c.manifest.GetKind() == kindNamespace:
			outcome = "exists"
		case !c.none():
			outcome, err = "configured", i.applyOne(ctx, c.manifest)
		}
		if err != nil {
			return fmt.Errorf("apply %s: %w", display(c.manifest), err)
		}
		if !c.remove {
			i.say("%s %s", display(c.manifest), outcome)
		}
	}
	return nil
}

// writeDiff prints the changes as unified diffs of YAML, without the content of Secrets.
func writeDiff(out io.Writer, changes []change) error {
	for _, c := range changes {
		if c.none() {
			continue
		}
		before, after := settable(c.live), settable(c.result)
		hideSecrets(before, after)
		var texts [2]string
		for n, object := range []*unstructured.Unstructured{before, after} {
			if object == nil {
				continue
			}
			content, err := sigsyaml.Marshal(object.Object)
			if err != nil {
				return fmt.Errorf("%s: %w", display(c.manifest), err)
			}
			texts[n] = string(content)
		}
		name := display(c.manifest)
		if err := difflib.WriteUnifiedDiff(out, difflib.UnifiedDiff{
			A: yamlLines(texts[0]), B: yamlLines(texts[1]), FromFile: "live " + name, ToFile: "new " + name, Context: 3,
		}); err != nil {
			return err
		}
	}
	return nil
}

// yamlLines splits a text of lines. Unlike difflib.SplitLines, it adds no empty line.
func yamlLines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, line)
	}
	return out
}

// settable returns an object without the fields that the API server sets.
func settable(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	object = object.DeepCopy()
	delete(object.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	return object
}

// hideSecrets replaces the values of a Secret.
func hideSecrets(before, after *unstructured.Unstructured) {
	values := func(object *unstructured.Unstructured) map[string]any {
		if object == nil || object.GetKind() != kindSecret {
			return nil
		}
		data, _ := object.Object["data"].(map[string]any)
		return data
	}
	old, current := values(before), values(after)
	for key := range sets.KeySet(old).Union(sets.KeySet(current)) {
		was, is := old[key], current[key]
		hidden := [2]string{"***", "***"}
		if was != nil && is != nil && was != is {
			hidden = [2]string{"*** (before)", "*** (after)"}
		}
		if was != nil {
			old[key] = hidden[0]
		}
		if is != nil {
			current[key] = hidden[1]
		}
	}
}

// confirmation returns an error that lists why a command needs --yes.
func confirmation(reasons []string) error {
	return fmt.Errorf("nothing was changed: the following requires --yes. --dry-run prints all changes.\n  - %s", strings.Join(reasons, "\n  - "))
}

// installation are the flags of commands that install a program or change an installed one.
type installation struct {
	dryRun, reset, yes bool
	// given reports whether a flag is set.
	given func(flags ...string) bool
}

func (i *installation) addFlags(flags *pflag.FlagSet, program string) {
	flags.BoolVar(&i.dryRun, "dry-run", false, "Print what would change as unified diffs, and change nothing.")
	flags.BoolVar(&i.yes, "yes", false, "Make changes that require a confirmation.")
	if program != "" {
		flags.BoolVar(&i.reset, "reset", false, "Return all settings of an installed "+program+" that no flag names to their defaults. Without --reset, they stay as they are.")
	}
}

// parsed sets what the command line contains.
func (i *installation) parsed(flags *pflag.FlagSet) {
	i.given = func(names ...string) bool { return slices.ContainsFunc(names, flags.Changed) }
}

// confirm prints the changes of a dry run. It returns an error if the command may not make them.
func (i *installation) confirm(streams genericiooptions.IOStreams, changes []change, reasons []string) error {
	if i.dryRun {
		if err := writeDiff(streams.Out, changes); err != nil {
			return err
		}
	}
	switch {
	case len(reasons) == 0:
	case i.dryRun:
		say(streams.ErrOut, "Requires --yes:\n  - %s", strings.Join(reasons, "\n  - "))
	case !i.yes:
		return confirmation(reasons)
	}
	return nil
}
