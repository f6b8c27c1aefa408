package join

import (
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
)

func TestResources(t *testing.T) {
	settings := agentSettings{cluster: "c1", namespace: manifests.AgentNamespace, driver: program.DefaultDriver}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.resources.AddFlags(flags, "agent")
	if err := flags.Parse([]string{"--resource-requests=memory=300Mi", "--resource-limits=memory=2Gi,cpu=1"}); err != nil {
		t.Fatal(err)
	}
	objects, err := settings.objects(true)
	if err != nil {
		t.Fatal(err)
	}
	var agent appsv1.Deployment
	if _, err := manifests.Find(objects, manifests.KindDeployment, manifests.AgentName, &agent); err != nil {
		t.Fatal(err)
	}
	if got := agent.Spec.Template.Spec.Containers[0].Resources; got.Requests.Memory().String() != "300Mi" || got.Limits.Memory().String() != "2Gi" || got.Limits.Cpu().String() != "1" {
		t.Errorf("resources of the agent = %v, want a request of 300Mi and limits of 2Gi and 1", got)
	}
}
