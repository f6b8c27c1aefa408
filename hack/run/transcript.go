package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// deliveryTimeout bounds the wait until the examples are on the first managed cluster.
const deliveryTimeout = time.Minute

// commands limits the commands that run at the same time.
var commands = make(chan struct{}, 4)

// transcript applies the examples, waits until they are on the first managed
// cluster, and prints the kubectl commands that show them, with their output.
func transcript(ctx context.Context, fleet *localhub.Fleet) error {
	examples, err := filepath.Glob("artifacts/example/*.yaml")
	if err != nil {
		return err
	}
	// The managed cluster of the example has already joined, and its agent reports its namespaces.
	examples = slices.DeleteFunc(examples, func(path string) bool {
		base := filepath.Base(path)
		return base == "managedcluster.yaml" || base == "clusternamespace.yaml"
	})
	applied := time.Now()
	if err := steps(ctx, os.Stdout, step{line: "kubectl apply -f " + strings.Join(examples, ",")}); err != nil {
		return err
	}
	member := fleet.Members[0]
	manifests, err := localhub.ReadManifests(filepath.Join("artifacts", "example"))
	if err != nil {
		return err
	}
	if err := reported(ctx, fleet.Hub, manifests); err != nil {
		return err
	}
	rbac, err := delivered(ctx, fleet.Hub, member.Cluster, manifests)
	if err != nil {
		return err
	}
	fmt.Printf("# delivered to %s %.1fs after the first apply\n", member.Name, time.Since(applied).Seconds())

	managed := filepath.Join(stateDir, member.Name+".kubeconfig")
	show := []step{
		get("get", "clusterpermissions", "--all-namespaces"),
		get("get", "manifestworks", "--namespace", member.Name),
		get("explain", "clusterpermission.spec.roles"),
	}
	for _, namespace := range namespaces(rbac) {
		command := []string{"--kubeconfig", managed, "get"}
		if namespace != "" {
			command = append(command, "--namespace", namespace)
		}
		for _, object := range rbac {
			if object.namespace == namespace {
				command = append(command, object.resource.Resource+"/"+object.name)
			}
		}
		show = append(show, get(command...))
	}
	err = parallel(ctx, os.Stdout,
		func(ctx context.Context, out io.Writer) error {
			if err := steps(ctx, out, append(show, fetchAccount(member.Name)...)...); err != nil {
				return err
			}
			return useAccount(ctx, out, member.Name)
		},
		func(ctx context.Context, out io.Writer) error { return useExecutor(ctx, out, member.Name, managed) },
		func(ctx context.Context, out io.Writer) error { return searchFleet(ctx, out, fleet) },
		func(ctx context.Context, out io.Writer) error { return fleetAccess(ctx, out, member.Name) },
	)
	if err != nil {
		return err
	}
	fmt.Println()
	return nil
}

// section writes a part of the transcript.
type section func(ctx context.Context, out io.Writer) error

// parallel runs sections at the same time, and writes them in their order.
func parallel(ctx context.Context, out io.Writer, sections ...section) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written := make([]bytes.Buffer, len(sections))
	results := make([]chan error, len(sections))
	for i, run := range sections {
		results[i] = make(chan error, 1)
		running.Go(func() { results[i] <- run(ctx, &written[i]) })
	}
	for i := range sections {
		err := <-results[i]
		if _, failure := written[i].WriteTo(out); err != nil || failure != nil {
			return errors.Join(err, failure)
		}
	}
	return nil
}

// step is a comment of the transcript, or a line that a shell runs. If refusal is set, the line
// must fail with this text. A line that only reads runs at the same time as its neighbours that do.
type step struct {
	comment, line, refusal string
	reads                  bool
}

// get returns a step that runs kubectl, which only reads.
func get(args ...string) step {
	return step{line: "kubectl " + strings.Join(args, " "), reads: true}
}

// run writes the comment, or the line and its output.
func (s step) run(ctx context.Context, out io.Writer) error {
	if s.comment != "" {
		_, err := fmt.Fprintf(out, "# %s\n", s.comment)
		return err
	}
	if _, err := fmt.Fprintf(out, "$ %s\n", s.line); err != nil {
		return err
	}
	output, err := shell(ctx, s.line, s.refusal)
	_, failure := out.Write(output)
	return errors.Join(err, failure)
}

// steps runs steps, and writes them in their order.
func steps(ctx context.Context, out io.Writer, all ...step) error {
	for len(all) > 0 {
		count := 1
		for all[0].reads && count < len(all) && all[count].reads {
			count++
		}
		var together []section
		for _, s := range all[:count] {
			together = append(together, s.run)
		}
		all = all[count:]
		if err := parallel(ctx, out, together...); err != nil {
			return err
		}
	}
	return nil
}

// reference names an object on a managed cluster.
type reference struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// isExample reports whether a ManifestWork is one of the examples, or delivers one of them. Others
// belong to the user and may be impossible to deliver.
func isExample(work *unstructured.Unstructured, examples []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(examples, func(example *unstructured.Unstructured) bool {
		if example.GetNamespace() != work.GetNamespace() {
			return false
		}
		owner := metav1.GetControllerOf(work)
		return example.GetKind() == work.GetKind() && example.GetName() == work.GetName() ||
			owner != nil && example.GetKind() == owner.Kind && example.GetName() == owner.Name
	})
}

// delivered waits until every manifest of every example is on the cluster, and
// returns those that are RBAC objects.
func delivered(ctx context.Context, hub, cluster *localhub.Cluster, examples []*unstructured.Unstructured) ([]reference, error) {
	onHub, err := dynamic.NewForConfig(hub.AdminConfig())
	if err != nil {
		return nil, err
	}
	onCluster, err := dynamic.NewForConfig(cluster.AdminConfig())
	if err != nil {
		return nil, err
	}
	works := onHub.Resource(schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"})
	var rbac []reference
	missing := errors.New("not checked")
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, deliveryTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := works.Namespace(cluster.Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			missing = err
			return false, nil
		}
		rbac = nil
		for _, work := range list.Items {
			if !isExample(&work, examples) {
				continue
			}
			manifests, _, err := unstructured.NestedSlice(work.Object, "spec", "workload", "manifests")
			if err != nil {
				return false, err
			}
			for _, manifest := range manifests {
				object := &unstructured.Unstructured{Object: manifest.(map[string]any)}
				// The guess is right for the kinds of the examples.
				resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
				ref := reference{resource: resource, namespace: object.GetNamespace(), name: object.GetName()}
				if _, err := onCluster.Resource(resource).Namespace(ref.namespace).Get(ctx, ref.name, metav1.GetOptions{}); err != nil {
					missing = fmt.Errorf("manifestwork %s: %s %s: %w", work.GetName(), object.GetKind(), object.GetName(), err)
					return false, nil
				}
				if resource.Group == "rbac.authorization.k8s.io" {
					rbac = append(rbac, ref)
				}
			}
		}
		missing = errors.New("no ManifestWork contains RBAC objects")
		return len(rbac) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the examples are not delivered to %s: %w", cluster.Name, errors.Join(missing, ctx.Err()))
	}
	return rbac, nil
}

// namespaces returns the namespaces of references, each once and sorted.
func namespaces(references []reference) []string {
	var result []string
	for _, ref := range references {
		result = append(result, ref.namespace)
	}
	slices.Sort(result)
	return slices.Compact(result)
}

// shell runs a line and returns its output. If refusal is set, the line must fail with this text. A
// hub merges its OpenAPI document a moment after the API is available, so shell retries a failed line.
func shell(ctx context.Context, line, refusal string) (output []byte, err error) {
	commands <- struct{}{}
	defer func() { <-commands }()
	var failure error
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 15*time.Second, true, func(ctx context.Context) (bool, error) {
		command := exec.CommandContext(ctx, "bash", "-c", "set -o pipefail; umask 077; "+line)
		command.Env = append(os.Environ(), "PATH="+localhub.BinDir()+":"+os.Getenv("PATH"),
			"KUBECONFIG="+hubConfig, "KUBECACHEDIR="+kubectlDir, "KUBERC=off")
		output, failure = command.CombinedOutput()
		if refusal != "" {
			return failure != nil && strings.Contains(string(output), refusal), nil
		}
		return failure == nil, nil
	})
	switch {
	case err == nil:
		return output, nil
	case refusal != "" && failure == nil:
		return output, fmt.Errorf("%s: succeeded, want an error that contains %q", line, refusal)
	}
	return output, fmt.Errorf("%s: %w", line, errors.Join(failure, ctx.Err()))
}
