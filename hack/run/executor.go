package main

import (
	"context"
	"fmt"
	"io"
)

const executorExamples = "artifacts/example/executor/"

// useExecutor shows the executor of a ManifestWork: the permission to name it on the hub, and the
// permissions that it needs on the managed cluster. managed is the kubeconfig of cluster.
func useExecutor(ctx context.Context, out io.Writer, cluster, managed string) error {
	apply := "kubectl apply -f " + executorExamples
	message := fmt.Sprintf(`kubectl get manifestwork greeting --namespace %s -o jsonpath='{.status.resourceStatus.manifests[0].conditions[?(@.type=="Applied")].message}{"\n"}'`, cluster)
	return steps(ctx, out,
		step{comment: "the agent applies a ManifestWork as its executor; first delete the objects of an earlier run"},
		step{line: fmt.Sprintf("kubectl delete --ignore-not-found -f %[1]swork.yaml -f %[1]spermission.yaml -f %[1]sbinding.yaml", executorExamples)},
		step{line: apply + "author.yaml"},
		step{comment: "carol may write ManifestWorks, but may not name this executor"},
		step{line: apply + "work.yaml --as carol", refusal: "execute-as"},
		step{line: apply + "binding.yaml"},
		step{line: apply + "work.yaml --as carol"},
		step{comment: "on the cluster, the executor lacks permission, so the agent applies nothing"},
		step{line: fmt.Sprintf("kubectl wait manifestwork/greeting --namespace %s --for=condition=Applied=false", cluster)},
		step{line: message, reads: true},
		step{line: apply + "permission.yaml"},
		step{line: fmt.Sprintf("kubectl wait manifestwork/greeting --namespace %s --for=condition=Applied", cluster)},
		step{line: fmt.Sprintf("kubectl --kubeconfig %s get configmap greeting --namespace default", managed), reads: true},
		step{line: fmt.Sprintf("kubectl get manifestwork greeting --namespace %s -o wide", cluster), reads: true},
	)
}
