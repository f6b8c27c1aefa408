package fakeaws_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

func entryOf(principal string) *eks.CreateAccessEntryInput {
	return &eks.CreateAccessEntryInput{
		ClusterName: aws.String("hub"), PrincipalArn: &principal, Username: aws.String("cluster1"),
		KubernetesGroups: []string{"open-cluster-management:cluster1"}, Tags: map[string]string{"team": "fleet"},
	}
}

func TestAccessEntryLifecycle(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPIAndConfigMap)
	role := createRole(t, c, "ocm-hub-1", trustUnknown)
	hub := aws.String("hub")
	created, err := c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
	succeed(t, err)
	e := created.AccessEntry
	if *e.PrincipalArn != role || *e.Username != "cluster1" || *e.Type != "STANDARD" || *e.ClusterName != "hub" ||
		!slices.Equal(e.KubernetesGroups, []string{"open-cluster-management:cluster1"}) || e.Tags["team"] != "fleet" || e.CreatedAt == nil {
		t.Errorf("CreateAccessEntry() = %+v, want user cluster1 with the requested group and tag", e)
	}
	_, err = c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
	wantCode(t, err, "ResourceInUseException")

	got, err := c.EKS.DescribeAccessEntry(t.Context(), &eks.DescribeAccessEntryInput{ClusterName: hub, PrincipalArn: &role})
	succeed(t, err)
	if *got.AccessEntry.AccessEntryArn != *e.AccessEntryArn {
		t.Errorf("DescribeAccessEntry() has ARN %s, want %s", *got.AccessEntry.AccessEntryArn, *e.AccessEntryArn)
	}
	_, err = c.EKS.UpdateAccessEntry(t.Context(), &eks.UpdateAccessEntryInput{ClusterName: hub, PrincipalArn: &role, KubernetesGroups: []string{"other"}})
	succeed(t, err)
	_, err = c.EKS.TagResource(t.Context(), &eks.TagResourceInput{ResourceArn: e.AccessEntryArn, Tags: map[string]string{"a": "b"}})
	succeed(t, err)
	entries := s.AccessEntries(hubARN)
	if len(entries) != 1 || !slices.Equal(entries[0].Groups, []string{"other"}) || entries[0].Username != "cluster1" || entries[0].PrincipalARN != role ||
		!maps.Equal(entries[0].Tags, map[string]string{"team": "fleet", "a": "b"}) {
		t.Errorf("AccessEntries() = %+v, want the new groups and both tags", entries)
	}
	_, err = c.EKS.DeleteAccessEntry(t.Context(), &eks.DeleteAccessEntryInput{ClusterName: hub, PrincipalArn: &role})
	succeed(t, err)
	_, err = c.EKS.DeleteAccessEntry(t.Context(), &eks.DeleteAccessEntryInput{ClusterName: hub, PrincipalArn: &role})
	wantCode(t, err, "ResourceNotFoundException")
	_, err = c.EKS.DescribeAccessEntry(t.Context(), &eks.DescribeAccessEntryInput{ClusterName: hub, PrincipalArn: &role})
	wantCode(t, err, "ResourceNotFoundException")
	_, err = c.EKS.TagResource(t.Context(), &eks.TagResourceInput{ResourceArn: e.AccessEntryArn, Tags: map[string]string{"a": "b"}})
	wantCode(t, err, "NotFoundException")
}

// TestRepeatedRequest checks that CreateAccessEntry accepts a repeated request only if its
// token and its body are the same.
func TestRepeatedRequest(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	in := entryOf(createRole(t, c, "role", trustUnknown))
	in.ClientRequestToken = aws.String("token")
	for range 2 {
		_, err := c.EKS.CreateAccessEntry(t.Context(), in)
		succeed(t, err)
	}
	in.KubernetesGroups = nil
	_, err := c.EKS.CreateAccessEntry(t.Context(), in)
	wantCode(t, err, "ResourceInUseException")
	if n := len(s.AccessEntries(hubARN)); n != 1 {
		t.Errorf("AccessEntries() has %d entries, want 1", n)
	}
}

func TestDefaultUsername(t *testing.T) {
	_, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	created, err := c.EKS.CreateAccessEntry(t.Context(), &eks.CreateAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(createRole(t, c, "role", trustUnknown))})
	succeed(t, err)
	if want := "arn:aws:sts::" + hubAccount + ":assumed-role/role/{{SessionName}}"; *created.AccessEntry.Username != want {
		t.Errorf("username = %s, want %s", *created.AccessEntry.Username, want)
	}
}

func TestRefusedAccessEntries(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	role := createRole(t, c, "role", trustUnknown)
	invalid := "InvalidParameterException"
	for name, test := range map[string]struct {
		change func(*eks.CreateAccessEntryInput)
		code   string
	}{
		"unknown role": {func(in *eks.CreateAccessEntryInput) { *in.PrincipalArn += "x" }, invalid},
		"unknown account": {func(in *eks.CreateAccessEntryInput) {
			in.PrincipalArn = aws.String("arn:aws:iam::" + unknownAccount + ":role/role")
		}, invalid},
		"session": {func(in *eks.CreateAccessEntryInput) {
			in.PrincipalArn = aws.String("arn:aws:sts::" + hubAccount + ":assumed-role/role/me")
		}, invalid},
		"not an ARN": {func(in *eks.CreateAccessEntryInput) { in.PrincipalArn = aws.String("role") }, invalid},
		"group prefix system": {func(in *eks.CreateAccessEntryInput) {
			in.KubernetesGroups = []string{"system:open-cluster-management:cluster1"}
		}, invalid},
		"group prefix eks":                {func(in *eks.CreateAccessEntryInput) { in.KubernetesGroups = []string{"eks:x"} }, invalid},
		"group prefix aws":                {func(in *eks.CreateAccessEntryInput) { in.KubernetesGroups = []string{"aws:x"} }, invalid},
		"group prefix amazon":             {func(in *eks.CreateAccessEntryInput) { in.KubernetesGroups = []string{"amazon:x"} }, invalid},
		"group prefix iam":                {func(in *eks.CreateAccessEntryInput) { in.KubernetesGroups = []string{"fine", "iam:x"} }, invalid},
		"username prefix system":          {func(in *eks.CreateAccessEntryInput) { in.Username = aws.String("system:x") }, invalid},
		"username without a fixed prefix": {func(in *eks.CreateAccessEntryInput) { in.Username = aws.String("{{SessionName}}") }, invalid},
		"unknown type":                    {func(in *eks.CreateAccessEntryInput) { in.Type = aws.String("OTHER") }, invalid},
		"groups with a node type":         {func(in *eks.CreateAccessEntryInput) { in.Type = aws.String("EC2_LINUX") }, invalid},
		"reserved tag":                    {func(in *eks.CreateAccessEntryInput) { in.Tags = map[string]string{"aws:x": "y"} }, invalid},
		"unknown cluster":                 {func(in *eks.CreateAccessEntryInput) { in.ClusterName = aws.String("other") }, "ResourceNotFoundException"},
	} {
		t.Run(name, func(t *testing.T) {
			in := entryOf(role)
			test.change(in)
			_, err := c.EKS.CreateAccessEntry(t.Context(), in)
			wantCode(t, err, test.code)
		})
	}
	if entries := s.AccessEntries(hubARN); len(entries) != 0 {
		t.Errorf("AccessEntries() after rejected requests = %+v, want none", entries)
	}
	_, err := c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
	succeed(t, err)
	_, err = c.EKS.UpdateAccessEntry(t.Context(), &eks.UpdateAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: &role, KubernetesGroups: []string{"system:masters"}})
	wantCode(t, err, invalid)
}

func TestConfigMapClusterHasNoEntries(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeConfigMap)
	role := createRole(t, c, "role", trustUnknown)
	_, err := c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
	wantCode(t, err, "InvalidRequestException")
	_, err = c.EKS.DescribeAccessEntry(t.Context(), &eks.DescribeAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: &role})
	wantCode(t, err, "InvalidRequestException")
	succeed(t, s.AddCluster(hubARN, fakeaws.ModeAPIAndConfigMap))
	_, err = c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
	succeed(t, err)
}

// TestEventualConsistency checks that EKS does not find a new role in the first UnseenByEKS
// calls.
func TestEventualConsistency(t *testing.T) {
	file := stateFile(t)
	s, c := newHub(t, fakeaws.Options{UnseenByEKS: 2, StateFile: file}, fakeaws.ModeAPI)
	role := createRole(t, c, "role", trustUnknown)
	for range 2 {
		_, err := c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
		wantCode(t, err, "InvalidParameterException")
	}
	_, err := c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
	succeed(t, err)
	if n := len(s.AccessEntries(hubARN)); n != 1 {
		t.Errorf("AccessEntries() has %d entries, want 1", n)
	}
}

func TestClusters(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	succeed(t, s.AddCluster("arn:aws:eks:eu-west-1:"+hubAccount+":cluster/elsewhere", fakeaws.ModeAPI))
	succeed(t, s.AddCluster("arn:aws:eks:us-west-2:"+managedAccount+":cluster/foreign", fakeaws.ModeAPI))
	succeed(t, s.SetClusterEndpoint(hubARN, "https://127.0.0.1:6443", []byte("certificate")))
	got, err := c.EKS.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("hub")})
	succeed(t, err)
	if cl := got.Cluster; *cl.Arn != hubARN || *cl.Endpoint != "https://127.0.0.1:6443" || *cl.CertificateAuthority.Data != "Y2VydGlmaWNhdGU=" ||
		cl.AccessConfig.AuthenticationMode != "API" || cl.Status != "ACTIVE" {
		t.Errorf("DescribeCluster() = %+v, want the ARN, the endpoint, the authority, mode API and status ACTIVE", cl)
	}
	for _, name := range []string{"foreign", "elsewhere"} {
		_, err = c.EKS.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: &name})
		wantCode(t, err, "ResourceNotFoundException")
	}
	_, err = c.EKS.ListNodegroups(t.Context(), &eks.ListNodegroupsInput{ClusterName: aws.String("hub")})
	wantCode(t, err, "UnknownOperationException")
	for _, arn := range []string{"hub", "arn:aws:eks:us-west-2:1:cluster/hub", "arn:aws-cn:eks:us-west-2:" + hubAccount + ":cluster/hub", "arn:aws:eks:nowhere:" + hubAccount + ":cluster/hub"} {
		if s.AddCluster(arn, fakeaws.ModeAPI) == nil {
			t.Errorf("AddCluster(%q) = nil, want an error", arn)
		}
	}
}

// TestPermissionsOfEKS checks the resource on which each EKS action requires permission.
func TestPermissionsOfEKS(t *testing.T) {
	s, admin := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	role := createRole(t, admin, "ocm-hub-1", trustUnknown)
	c := clientsFor(s, addUser(t, s, hubAccount, "hub",
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"eks:CreateAccessEntry","Resource":"`+hubARN+`"},
		{"Effect":"Allow","Action":["eks:DescribeAccessEntry","eks:TagResource"],"Resource":"arn:aws:eks:us-west-2:`+hubAccount+`:access-entry/hub/role/`+hubAccount+`/ocm-hub-*/*"}]}`))
	_, err := c.EKS.CreateAccessEntry(t.Context(), entryOf(role))
	succeed(t, err)
	_, err = c.EKS.DescribeAccessEntry(t.Context(), &eks.DescribeAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: &role})
	succeed(t, err)
	_, err = c.EKS.DeleteAccessEntry(t.Context(), &eks.DeleteAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: &role})
	wantCode(t, err, "AccessDeniedException")
	_, err = c.EKS.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("hub")})
	wantCode(t, err, "AccessDeniedException")
	_, err = c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("ocm-hub-1")})
	wantCode(t, err, "AccessDenied")
}
