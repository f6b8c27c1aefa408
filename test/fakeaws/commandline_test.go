package fakeaws_test

import (
	"maps"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// TestCommandsCreateTheRole checks that the commands for administrators create the role of
// the identity.
func TestCommandsCreateTheRole(t *testing.T) {
	s := newServer(t, fakeaws.Options{})
	key := addUser(t, s, managedAccount, "admin", fakeaws.AdminPolicy)
	hub, err := irsa.ParseARN(hubARN)
	succeed(t, err)
	managed, err := irsa.ParseARN("arn:aws:eks:us-west-2:" + managedAccount + ":cluster/it-s")
	succeed(t, err)
	identity := irsa.Identity{Hub: hub, Managed: managed}
	const provider = "oidc.eks.us-west-2.amazonaws.com/id/1"
	if _, err := s.AddStaticOIDCProvider(managedAccount, provider, []byte(`{"keys":[]}`)); err != nil {
		t.Fatal(err)
	}
	commands := identity.Commands(provider, "open-cluster-management-agent:agent")
	for _, line := range commands {
		_, err := s.RunCommand(t.Context(), key, line)
		succeed(t, err)
	}
	roles := s.Roles(managedAccount)
	if len(roles) != 1 || roles[0].ARN != identity.ManagedClusterRoleARN() || !maps.Equal(roles[0].Tags, identity.Tags()) {
		t.Fatalf("Roles() = %+v, want the role %s with the tags %v", roles, identity.ManagedClusterRoleARN(), identity.Tags())
	}
	if policy := roles[0].InlinePolicies[identity.ManagedClusterRoleName()]; policy != identity.ManagedClusterAccessPolicy().JSON() {
		t.Errorf("access policy = %s, want %s", policy, identity.ManagedClusterAccessPolicy().JSON())
	}
	_, err = s.RunCommand(t.Context(), key, commands[0])
	wantCode(t, err, "EntityAlreadyExists")

	for _, line := range []string{
		"", "rm -r x", "aws eks list-clusters", "aws iam get-role --role-name x", "aws iam tag-role --role-name x --tags y",
		"aws iam put-role-policy --role-name 'x", "aws iam tag-role --role-name $(x)", "aws iam tag-role x",
		strings.ReplaceAll(commands[2], "--tags", "--other"),
	} {
		if _, err := s.RunCommand(t.Context(), key, line); err == nil {
			t.Errorf("RunCommand(%q) = nil error, want an error", line)
		}
	}
}
