package fakeaws_test

import (
	"os"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// TestRestart checks that a server with a state file keeps its state over a restart.
func TestRestart(t *testing.T) {
	options := fakeaws.Options{StateFile: stateFile(t)}
	f := newFleet(t, options, fakeaws.ModeAPI)
	_, err := f.hub.EKS.CreateAccessEntry(t.Context(), entryOf(f.hubRole))
	succeed(t, err)
	session := f.agent(t)
	roles, entries := f.server.Roles(hubAccount), f.server.AccessEntries(hubARN)
	key := addUser(t, f.server, hubAccount, "admin", fakeaws.AdminPolicy)
	succeed(t, f.server.Close())
	if mode := fileMode(t, options.StateFile); mode != 0o600 {
		t.Errorf("mode of the state file = %o, want 600: it contains secrets", mode)
	}

	s := newServer(t, options)
	if again := addUser(t, s, hubAccount, "admin", fakeaws.AdminPolicy); again != key {
		t.Errorf("AddUser() of an existing user after a restart returned another key, want the same key")
	}
	if !reflect.DeepEqual(s.Roles(hubAccount), roles) || !reflect.DeepEqual(s.AccessEntries(hubARN), entries) {
		t.Errorf("after a restart, Roles() = %+v and AccessEntries() = %+v, want no change", s.Roles(hubAccount), s.AccessEntries(hubARN))
	}
	creds, err := session.Config.Credentials.Retrieve(t.Context())
	succeed(t, err)
	c := clientsFor(s, fakeaws.AccessKey{ID: creds.AccessKeyID, Secret: creds.SecretAccessKey, SessionToken: creds.SessionToken})
	_, err = c.STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: &f.hubRole, RoleSessionName: aws.String("agent")})
	succeed(t, err)
	f.server = s
	_, err = f.webIdentity(t, f.issuer.token(t, nil))
	succeed(t, err)
}

func fileMode(t *testing.T, file string) os.FileMode {
	t.Helper()
	info, err := os.Stat(file)
	succeed(t, err)
	return info.Mode().Perm()
}

func TestUnwritableState(t *testing.T) {
	file := stateFile(t)
	s, c := newHub(t, fakeaws.Options{StateFile: file}, fakeaws.ModeAPI)
	succeed(t, os.Remove(file))
	succeed(t, os.Mkdir(file, 0o700))
	_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String("role"), AssumeRolePolicyDocument: aws.String(trustUnknown)})
	wantCode(t, err, "ServiceFailure")
	if _, err := s.AddUser(hubAccount, "other"); err == nil {
		t.Error("AddUser() with an unwritable state file = nil, want an error")
	}
	if _, err := fakeaws.New(fakeaws.Options{StateFile: file}); err == nil {
		t.Error("New() with a directory as the state file = nil, want an error")
	}
}

func TestBadState(t *testing.T) {
	file := stateFile(t)
	succeed(t, os.WriteFile(file, []byte("{"), 0o600))
	if _, err := fakeaws.New(fakeaws.Options{StateFile: file}); err == nil {
		t.Error("New() with an invalid state file = nil, want an error")
	}
	if _, err := fakeaws.New(fakeaws.Options{Region: "nowhere"}); err == nil {
		t.Error("New() with an unknown region = nil, want an error")
	}
}

// TestBadPrincipals checks that the server rejects invalid accounts, users, providers and modes.
func TestBadPrincipals(t *testing.T) {
	s := newServer(t, fakeaws.Options{})
	if _, err := s.AddUser("1", "admin"); err == nil {
		t.Error("AddUser() with an invalid account id = nil, want an error")
	}
	if _, err := s.AddUser(hubAccount, "a/b"); err == nil {
		t.Error("AddUser() with an invalid name = nil, want an error")
	}
	if _, err := s.AddUser(hubAccount, "admin", trustUnknown); err == nil {
		t.Error("AddUser() with a trust policy = nil, want an error")
	}
	if _, err := s.AddStaticOIDCProvider(hubAccount, "https://"+issuer, nil); err == nil {
		t.Error("AddStaticOIDCProvider() without keys = nil, want an error")
	}
	if _, err := s.AddOIDCProvider(hubAccount, "https://"+issuer, nil); err == nil {
		t.Error("AddOIDCProvider() with a scheme in the issuer = nil, want an error")
	}
	if err := s.AddCluster(hubARN, "OTHER"); err == nil {
		t.Error("AddCluster() with an unknown mode = nil, want an error")
	}
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("Calls() = %+v, want none", calls)
	}
}
