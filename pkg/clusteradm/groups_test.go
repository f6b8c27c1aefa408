package clusteradm

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
)

// A group of a directory is a distinguished name. One flag is one group: if a part of the name were a group of its own,
// the answer would contain its permissions.
func TestGroupsAreNotSplit(t *testing.T) {
	const name = "CN=ops,OU=teams,DC=example,DC=com"
	var review accessv1alpha1.FleetAccessReview
	var header http.Header
	kubeconfig := newQuestionedHub(t, func(_ string, got http.Header, body []byte) any {
		review, header = accessv1alpha1.FleetAccessReview{}, got
		if err := json.Unmarshal(body, &review); err != nil {
			t.Errorf("body: %v", err)
		}
		review.Status = accessv1alpha1.FleetAccessReviewStatus{Allowed: 1, Clusters: []accessv1alpha1.ClusterAccess{{Cluster: "cluster1", Decision: accessv1alpha1.AccessAllowed}}}
		return &review
	})
	for _, test := range []struct {
		args    []string
		want    []string
		warning string
	}{
		{[]string{"can-i", "list", "configmaps", "-A", "--subject=dana", "--group=" + name}, []string{name}, ""},
		{[]string{"can-i", "list", "configmaps", "-A", "--group=staff", "--group=" + name}, []string{"staff", name}, ""},
		{[]string{"can-i", "list", "configmaps", "-A", `--group=team "blue"`}, []string{`team "blue"`}, ""},
		{[]string{"can-i", "list", "configmaps", "-A", "--group=dev,ops"}, []string{"dev,ops"}, `Warning: --group "dev,ops" is one group`},
		{[]string{"explain", "user", "dana", "--group=" + name}, []string{name}, ""},
		{[]string{"explain", "group", name, "--group=Europe, ops"}, []string{"Europe, ops", name}, `Warning: --group "Europe, ops" is one group`},
	} {
		args := append([]string{"auth"}, test.args...)
		got := runCommand(t, append(args, "--kubeconfig="+kubeconfig, "--as=alice", "--as-group="+name, "--as-group=staff", "--as-user-extra=reason=a,b=c")...).done(t)
		if !slices.Equal(review.Spec.Groups, test.want) {
			t.Errorf("groups of clusteradm %v = %q, want %q", test.args, review.Spec.Groups, test.want)
		}
		if !strings.Contains(got.errOut, test.warning) || strings.Contains(got.errOut, "Warning") != (test.warning != "") {
			t.Errorf("clusteradm %v prints %q, want %q", test.args, got.errOut, test.warning)
		}
		// As kubectl does.
		if groups := header.Values("Impersonate-Group"); !slices.Equal(groups, []string{name, "staff"}) {
			t.Errorf("Impersonate-Group of clusteradm %v = %q, want 2 groups", test.args, groups)
		}
		if extra := header.Values("Impersonate-Extra-Reason"); !slices.Equal(extra, []string{"a,b=c"}) {
			t.Errorf("Impersonate-Extra-Reason of clusteradm %v = %q, want a,b=c", test.args, extra)
		}
	}
}

func TestAcceptDoesNotSplitRequesters(t *testing.T) {
	runCommand(t, "accept", "--clusters=cluster1", "--requesters=alice,bob").refused(t, `--requesters "alice,bob"`, "once for each user")
	hub, accept := newDecidingHub(t)
	accept("--requesters=CN=agent,O=example", "--requesters=bob").done(t)
	if got := hub.decisions["c1"].Spec.Requesters; !slices.Equal(got, []string{"CN=agent,O=example", "bob"}) {
		t.Errorf("requesters of the decision = %q, want 2", got)
	}
}
