package main

import (
	"context"
	"fmt"
)

const executorExamples = "artifacts/example/executor/"

// useExecutor shows the executor of a ManifestWork: the permission to name it on the hub, and the
// permissions that it needs on the managed cluster. managed is the kubeconfig of cluster.
func useExecutor(ctx context.Context, cluster, managed string) error {
	apply := "kubectl apply -f " + executorExamples
	message := fmt.Sprintf(`kubectl get manifestwork greeting --namespace %s -o jsonpath='{.status.resourceStatus.manifests[0].conditions[?(@.type=="Applied")].message}{"\n"}'`, cluster)
	return steps(ctx, []step{
		{comment: "the agent applies a ManifestWork as its executor; first delete the objects of an earlier run"},
		{line: fmt.Sprintf("kubectl delete --ignore-not-found -f %[1]swork.yaml -f %[1]spermission.yaml -f %[1]sbinding.yaml", executorExamples)},
		{line: apply + "author.yaml"},
		{comment: "carol may write ManifestWorks, but may not name this executor"},
		{line: apply + "work.yaml --as carol", refusal: "execute-as"},
		{line: apply + "binding.yaml"},
		{line: apply + "work.yaml --as carol"},
		{comment: "on the cluster, the executor lacks permission, so the agent applies nothing"},
		{line: fmt.Sprintf("kubectl wait manifestwork/greeting --namespace %s --for=condition=Applied=false", cluster)},
		{line: message},
		{line: apply + "permission.yaml"},
		{line: fmt.Sprintf("kubectl wait manifestwork/greeting --namespace %s --for=condition=Applied", cluster)},
		{line: fmt.Sprintf("kubectl --kubeconfig %s get configmap greeting --namespace default", managed)},
		{line: fmt.Sprintf("kubectl get manifestwork greeting --namespace %s -o wide", cluster)},
	})
}
