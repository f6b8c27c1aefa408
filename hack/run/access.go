package main

import (
	"context"
	"fmt"
	"io"
)

// editor is a user who receives access to the clusters of a set.
const editor = "erin"

// fleetAccess shows who may read Secrets on a cluster and why, before and after an assignment to a set that contains it.
func fleetAccess(ctx context.Context, out io.Writer, cluster string) error {
	const assignment = "artifacts/example/access/assignment.yaml"
	whoCan := step{line: "clusteradm auth who-can get secrets -n default --cluster " + cluster}
	canI := "clusteradm auth can-i get secrets -n default --cluster " + cluster + " --subject " + editor
	return steps(ctx, out,
		step{comment: "who may read Secrets on " + cluster + ", and why; first delete the assignment of an earlier run"},
		step{line: "kubectl delete --ignore-not-found -f " + assignment},
		step{line: fmt.Sprintf("kubectl label managedcluster %s region=north --overwrite", cluster)},
		step{line: canI, refusal: "Denied"},
		whoCan,
		step{comment: editor + " receives a role on all clusters of a set, and those that join it"},
		step{line: "kubectl apply -f " + assignment},
		step{line: "kubectl wait --for=condition=Ready --namespace default multiclusterroleassignment/secret-editors"},
		step{line: canI},
		whoCan,
	)
}
