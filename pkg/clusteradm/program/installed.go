package program

import (
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// Installed is a Deployment that a cluster has, whatever installed it.
type Installed struct {
	*appsv1.Deployment
	container *corev1.Container
	arguments []argument
}

// Read returns the Deployment of a program, or nil if it does not exist.
func Read(ctx context.Context, kube kubernetes.Interface, namespace, name, container string) (*Installed, error) {
	deployment, err := cli.Optional(kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{}))
	if err != nil || deployment == nil {
		return nil, cli.Prefix(err, "the Deployment %s in %s", name, namespace)
	}
	return Of(deployment, container)
}

// In returns a program in manifests.
func In(objects []*unstructured.Unstructured, name, container string) (*Installed, error) {
	deployment := &appsv1.Deployment{}
	if _, err := manifests.Find(objects, manifests.KindDeployment, name, deployment); err != nil {
		return nil, err
	}
	return Of(deployment, container)
}

// Of returns a program by its Deployment and its container.
func Of(deployment *appsv1.Deployment, container string) (*Installed, error) {
	containers := deployment.Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == container })
	if at < 0 {
		return nil, fmt.Errorf("the Deployment %s in %s has no container %s: change it by the means that installed it", deployment.Name, deployment.Namespace, container)
	}
	return &Installed{deployment, &containers[at], parseArguments(containers[at].Args)}, nil
}

// Image returns the image of the program.
func (p *Installed) Image() string { return p.container.Image }

// Values returns the values of flags, one for each time that they are set.
func (p *Installed) Values(names ...string) []string {
	var out []string
	for _, a := range p.arguments {
		if slices.Contains(names, a.name) {
			out = append(out, a.value)
		}
	}
	return out
}

// Value returns the value of a flag, or fallback if it is not set.
func (p *Installed) Value(name, fallback string) string {
	if values := p.Values(name); len(values) > 0 {
		return values[len(values)-1]
	}
	return fallback
}

// List returns the items of flags whose values are separated by commas.
func (p *Installed) List(names ...string) []string {
	var out []string
	for _, value := range p.Values(names...) {
		items, err := csv.NewReader(strings.NewReader(value)).Read()
		if err != nil {
			items = []string{value}
		}
		out = append(out, items...)
	}
	return out
}

// ReplicasChange returns a reason to confirm manifests that change the number of replicas of the program.
func (p *Installed) ReplicasChange(objects []*unstructured.Unstructured, what string) []string {
	var manifest appsv1.Deployment
	if _, err := manifests.Find(objects, manifests.KindDeployment, p.Name, &manifest); err != nil {
		return nil
	}
	if from, to := p.Spec.Replicas, ptr.Deref(manifest.Spec.Replicas, 1); from != nil && *from != to {
		return []string{fmt.Sprintf("the replicas of the %s change from %d to %d", what, *from, to)}
	}
	return nil
}

// Unreadable returns the error for an argument that another command or person has written.
func (p *Installed) Unreadable(flag string, err error) error {
	return fmt.Errorf("the Deployment %s in %s has --%s=%s: %w", p.Name, p.Namespace, flag, cli.Printable(p.Value(flag, "")), err)
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

// RuntimeConfigFlag and gatesFlag are the flags whose values add up: a change of one feature gate keeps the others.
const (
	RuntimeConfigFlag = "runtime-config"
	gatesFlag         = "feature-gates"
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
		addsUp := a.name == gatesFlag || a.name == RuntimeConfigFlag
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

// Keep changes the Deployment in objects, the manifests for the new settings, to the installed one with the difference from
// the manifests for the installed settings.
func (p *Installed) Keep(objects, installed []*unstructured.Unstructured, changes *Resources, optional []string) error {
	var before, after appsv1.Deployment
	if _, err := manifests.Find(installed, manifests.KindDeployment, p.Name, &before); err != nil {
		return err
	}
	manifest, err := manifests.Find(objects, manifests.KindDeployment, p.Name, &after)
	if err != nil {
		return err
	}
	resources, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.container.Resources)
	if err != nil {
		return err
	}
	args := mergeArguments(p.arguments, before.Spec.Template.Spec.Containers[0].Args, after.Spec.Template.Spec.Containers[0].Args, optional)
	if err := manifests.ChangeContainer(objects, p.Name, func(container map[string]any) {
		container["args"], container["resources"] = manifests.Args(args...), resources
		changes.Set(container)
	}); err != nil {
		return err
	}
	if replicas := p.Spec.Replicas; replicas != nil && ptr.Equal(before.Spec.Replicas, after.Spec.Replicas) {
		return unstructured.SetNestedField(manifest.Object, int64(*replicas), "spec", "replicas")
	}
	return nil
}
