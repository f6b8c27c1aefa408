package main

import (
	"context"
	"fmt"
)

const executorExamples = "artifacts/example/executor/"

// useExecutor shows whom works act as: who may name an executor on the hub, and
// what the executor lacks on the managed cluster. managed is the kubeconfig of cluster.
func useExecutor(ctx context.Context, cluster, managed string) error {
	apply := "kubectl apply -f " + executorExamples
	message := fmt.Sprintf(`kubectl get manifestwork greeting --namespace %s -o jsonpath='{.status.resourceStatus.manifests[0].conditions[?(@.type=="Applied")].message}{"\n"}'`, cluster)
	return steps(ctx, []step{
		{comment: "a work acts as whom it names; what an earlier run has left goes first"},
		{line: fmt.Sprintf("kubectl delete --ignore-not-found -f %[1]swork.yaml -f %[1]spermission.yaml -f %[1]sbinding.yaml", executorExamples)},
		{line: apply + "author.yaml"},
		{comment: "carol may write works, but not name whom they act as"},
		{line: apply + "work.yaml --as carol", refusal: "execute-as"},
		{line: apply + "binding.yaml"},
		{line: apply + "work.yaml --as carol"},
		{comment: "on the cluster, the account may not write; nothing of the work is"},
		{line: fmt.Sprintf("kubectl wait manifestwork/greeting --namespace %s --for=condition=Applied=false", cluster)},
		{line: message},
		{line: apply + "permission.yaml"},
		{line: fmt.Sprintf("kubectl wait manifestwork/greeting --namespace %s --for=condition=Applied", cluster)},
		{line: fmt.Sprintf("kubectl --kubeconfig %s get configmap greeting --namespace default", managed)},
		{line: fmt.Sprintf("kubectl get manifestwork greeting --namespace %s -o wide", cluster)},
	})
}
