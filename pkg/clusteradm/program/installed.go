package clusteradm

import (
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// installedProgram is a Deployment that a cluster has, whatever installed it.
type installedProgram struct {
	deployment *appsv1.Deployment
	container  *corev1.Container
	arguments  []argument
}

// readProgram returns the Deployment of a program, or nil if it does not exist.
func readProgram(ctx context.Context, kube kubernetes.Interface, namespace, name, container string) (*installedProgram, error) {
	deployment, err := kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the Deployment %s in %s: %w", name, namespace, err)
	}
	containers := deployment.Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == container })
	if at < 0 {
		return nil, fmt.Errorf("the Deployment %s in %s has no container %s: change it by the means that installed it", name, namespace, container)
	}
	return &installedProgram{deployment, &containers[at], parseArguments(containers[at].Args)}, nil
}

// image returns the image of the program, or "" if the program is not installed.
func (p *installedProgram) image() string {
	if p == nil {
		return ""
	}
	return p.container.Image
}

// values returns the values of a flag, one for each time that it is set.
func (p *installedProgram) values(names ...string) []string {
	var out []string
	for _, a := range p.arguments {
		if slices.Contains(names, a.name) {
			out = append(out, a.value)
		}
	}
	return out
}

// value returns the value of a flag, or fallback if it is not set.
func (p *installedProgram) value(name, fallback string) string {
	if values := p.values(name); len(values) > 0 {
		return values[len(values)-1]
	}
	return fallback
}

// list returns the items of a flag whose values are separated by commas.
func (p *installedProgram) list(names ...string) []string {
	var out []string
	for _, value := range p.values(names...) {
		items, err := csv.NewReader(strings.NewReader(value)).Read()
		if err != nil {
			items = []string{value}
		}
		out = append(out, items...)
	}
	return out
}

// argument is a flag of a program with its value, or another word.
type argument struct {
	name, value string
	words       []string
}

func parseArguments(words []string) []argument {
	var out []argument
	for len(words) > 0 {
		a, rest := argument{words: words[:1]}, words[1:]
		if flag, ok := strings.CutPrefix(words[0], "--"); ok {
			name, value, assigned := strings.Cut(flag, "=")
			if !assigned && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				value, a.words, rest = rest[0], words[:2], rest[1:]
			}
			a.name, a.value = strings.ReplaceAll(name, "_", "-"), value
		}
		out, words = append(out, a), rest
	}
	return out
}

// gatesFlag and runtimeConfigFlag are the flags whose values add up: a change of one feature gate keeps the others.
const (
	gatesFlag         = "feature-gates"
	runtimeConfigFlag = "runtime-config"
)

// mergeArguments returns the arguments of an installed program after a change of its settings. before and after are the
// arguments in the manifests for the installed and for the new settings: what is equal in both stays as it is
// installed. An argument in optional is not added if nothing changes it.
func mergeArguments(installed []argument, before, after, optional []string) []string {
	wordsOf := func(words []string) map[string][]string {
		out := map[string][]string{}
		for _, a := range parseArguments(words) {
			out[a.name] = append(out[a.name], a.value)
		}
		return out
	}
	old, current, skipped := wordsOf(before), wordsOf(after), wordsOf(optional)
	changes := func(name string) bool { return name != "" && !slices.Equal(old[name], current[name]) }
	has := map[string]bool{}
	var out []string
	for _, a := range installed {
		has[a.name] = true
		addsUp := a.name == gatesFlag || a.name == runtimeConfigFlag
		if changes(a.name) && (!addsUp || slices.Contains(old[a.name], a.value)) {
			continue
		}
		out = append(out, a.words...)
	}
	for _, a := range parseArguments(after) {
		if _, skip := skipped[a.name]; changes(a.name) || !has[a.name] && !skip {
			out = append(out, a.words...)
		}
	}
	return out
}

// keep changes the Deployment of a program in objects, the manifests for the new settings, to the installed one with the
// difference from the manifests for the installed settings.
func (p *installedProgram) keep(objects, installed []*unstructured.Unstructured, resources *resourceSettings, optional []string) error {
	before, _, err := deploymentIn(installed, p.deployment.Name)
	if err != nil {
		return err
	}
	after, manifest, err := deploymentIn(objects, p.deployment.Name)
	if err != nil {
		return err
	}
	kept := p.container.Resources.DeepCopy()
	if err := resources.change(kept); err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kept)
	if err != nil {
		return err
	}
	var args []any
	for _, arg := range mergeArguments(p.arguments, before.Spec.Template.Spec.Containers[0].Args, after.Spec.Template.Spec.Containers[0].Args, optional) {
		args = append(args, arg)
	}
	containers, _, err := unstructured.NestedSlice(manifest.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	container, _ := containers[0].(map[string]any)
	container["args"], container["resources"] = args, fields
	if err := unstructured.SetNestedSlice(manifest.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return err
	}
	if replicas := p.deployment.Spec.Replicas; replicas != nil && ptr.Equal(before.Spec.Replicas, after.Spec.Replicas) {
		return unstructured.SetNestedField(manifest.Object, int64(*replicas), "spec", "replicas")
	}
	return nil
}

// deploymentIn returns the manifest of a Deployment, and the same with a type.
func deploymentIn(objects []*unstructured.Unstructured, name string) (*appsv1.Deployment, *unstructured.Unstructured, error) {
	for _, object := range objects {
		if object.GetKind() == kindDeployment && object.GetName() == name {
			deployment := &appsv1.Deployment{}
			return deployment, object, fromUnstructured(object, deployment)
		}
	}
	return nil, nil, fmt.Errorf("the manifests contain no Deployment %s", name)
}
