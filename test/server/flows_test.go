package server

import (
	"context"
	"fmt"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestAgentsHaveTheirOwnFlowSchema checks that requests of agents match the FlowSchema of
// artifacts/rbac, on the hub and on the server, so that other users do not delay agents.
func TestAgentsHaveTheirOwnFlowSchema(t *testing.T) {
	f := framework.Shared(t)
	schema := framework.Must(f.HubClient.FlowcontrolV1().FlowSchemas().Get(t.Context(), "open-cluster-management-agents", metav1.GetOptions{}))(t)
	groups := []string{localhub.AgentGroup(framework.Cluster1), clusterv1.AllAgentsGroup}
	agent := localhub.AgentUser(framework.Cluster1)
	for name, c := range map[string]struct {
		config *rest.Config
		want   bool
	}{
		"agent, hub":    {framework.Must(f.Hub.UserConfig(agent, groups...))(t), true},
		"agent, server": {framework.Must(f.Server.UserConfig(agent, groups...))(t), true},
		"user, hub":     {framework.Must(f.Hub.UserConfig("some-user"))(t), false},
		"user, server":  {framework.Must(f.Server.UserConfig("some-user"))(t), false},
	} {
		client := framework.Must(rest.HTTPClientFor(c.config))(t)
		path := "/apis/work.open-cluster-management.io/v1/namespaces/" + framework.Cluster1 + "/manifestworks?limit=1"
		framework.Eventually(t, fmt.Sprintf("request of %s matches the FlowSchema of agents: %t", name, c.want), func(context.Context) error {
			response, err := client.Get(c.config.Host + path)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			uid := response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
			if uid == "" || (uid == string(schema.UID)) != c.want {
				return fmt.Errorf("%s: UID of the matched FlowSchema = %q, UID of the FlowSchema of agents = %s", response.Status, uid, schema.UID)
			}
			return nil
		})
	}
}
