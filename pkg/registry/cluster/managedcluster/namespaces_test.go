package managedcluster

import (
	"context"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

type managed = clusterv1.ClusterSetManagedNamespaceConfig

func conditionsWith(messages ...string) []metav1.Condition {
	var out []metav1.Condition
	for _, message := range messages {
		out = append(out, metav1.Condition{Type: clusterv1.ConditionNamespaceAvailable, Message: message})
	}
	return out
}

func withNamespaces(namespaces ...managed) *cluster.ManagedCluster {
	return &cluster.ManagedCluster{Status: clusterv1.ManagedClusterStatus{ManagedNamespaces: namespaces}}
}

// TestKeepNamespaces writes the list of managed namespaces as an agent and as the server.
func TestKeepNamespaces(t *testing.T) {
	stored := []managed{{Name: "shop", ClusterSet: "global"}, {Name: "shop", ClusterSet: "prod", Conditions: conditionsWith("old")}}
	long := strings.Repeat("ä", clusterv1.MaxManagedNamespaceMessage)
	for name, test := range map[string]struct {
		user          string
		groups        []string
		written, want []managed
	}{
		"the agent reports one": {
			written: []managed{{Name: "shop", ClusterSet: "prod", Conditions: conditionsWith("new")}},
			want:    []managed{stored[0], {Name: "shop", ClusterSet: "prod", Conditions: conditionsWith("new")}},
		},
		"the agent reports in another order": {
			written: []managed{{Name: "shop", ClusterSet: "prod", Conditions: conditionsWith("a")}, {Name: "shop", ClusterSet: "global", Conditions: conditionsWith("b")}},
			want:    []managed{{Name: "shop", ClusterSet: "global", Conditions: conditionsWith("b")}, {Name: "shop", ClusterSet: "prod", Conditions: conditionsWith("a")}},
		},
		"the agent removes a condition": {
			written: []managed{{Name: "shop", ClusterSet: "prod"}},
			want:    []managed{stored[0], {Name: "shop", ClusterSet: "prod"}},
		},
		"the agent does not know the list": {want: stored},
		"the agent adds to the list": {
			written: []managed{stored[0], stored[1], {Name: "kube-system", ClusterSet: "prod"}, {Name: "shop", ClusterSet: "other"}},
			want:    stored,
		},
		"a message is too long": {
			written: []managed{{Name: "shop", ClusterSet: "prod", Conditions: conditionsWith(long)}},
			want:    []managed{stored[0], {Name: "shop", ClusterSet: "prod", Conditions: conditionsWith(long[:clusterv1.MaxManagedNamespaceMessage])}},
		},
		"a message is too long by half a character": {
			written: []managed{{Name: "shop", ClusterSet: "prod", Conditions: conditionsWith("a" + long)}},
			want:    []managed{stored[0], {Name: "shop", ClusterSet: "prod", Conditions: conditionsWith("a" + long[:clusterv1.MaxManagedNamespaceMessage-2])}},
		},
		"the server lists others": {
			user: user.APIServerUser, groups: []string{user.SystemPrivilegedGroup},
			written: []managed{{Name: "bank", ClusterSet: "prod"}},
			want:    []managed{{Name: "bank", ClusterSet: "prod"}},
		},
		"the server lists none":             {user: user.APIServerUser, groups: []string{user.SystemPrivilegedGroup}},
		"a user has the name of the server": {user: user.APIServerUser, want: stored},
	} {
		t.Run(name, func(t *testing.T) {
			name := test.user
			if name == "" {
				name = "system:open-cluster-management:cluster1:agent"
			}
			ctx := request.WithUser(context.Background(), &user.DefaultInfo{Name: name, Groups: test.groups})
			old, c := withNamespaces(stored...), withNamespaces(test.written...)
			before := old.DeepCopy()
			keepNamespaces(ctx, c, old)
			if !apiequality.Semantic.DeepEqual(c.Status.ManagedNamespaces, test.want) {
				t.Errorf("keepNamespaces(%v) = %v, want %v", test.written, c.Status.ManagedNamespaces, test.want)
			}
			if !apiequality.Semantic.DeepEqual(old, before) {
				t.Errorf("stored object after keepNamespaces(%v) = %v, want it unchanged", test.written, old.Status.ManagedNamespaces)
			}
		})
	}
}
