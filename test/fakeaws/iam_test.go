package fakeaws_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

func TestRoleLifecycle(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	name := aws.String("ocm-hub-79e99112993014816615711cbd35a9bc")
	created, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: name, AssumeRolePolicyDocument: aws.String(trustUnknown), Description: aws.String("a managed cluster"),
		Tags: []types.Tag{{Key: aws.String("hub_cluster_name"), Value: aws.String("hub")}, {Key: aws.String("empty"), Value: aws.String("")}},
	})
	succeed(t, err)
	if id, ok := middleware.GetRequestIDMetadata(created.ResultMetadata); !ok || len(id) != 36 {
		t.Errorf("request id = %q, want a UUID", id)
	}
	role := created.Role
	if want := "arn:aws:iam::111122223333:role/" + *name; *role.Arn != want {
		t.Errorf("ARN = %s, want %s", *role.Arn, want)
	}
	if !strings.HasPrefix(*role.RoleId, "AROA") || *role.MaxSessionDuration != 3600 || len(role.Tags) != 2 {
		t.Errorf("CreateRole() = %+v, want an AROA id, the default session duration and two tags", role)
	}
	if strings.ContainsAny(*role.AssumeRolePolicyDocument, "{ +\"") || decoded(t, role.AssumeRolePolicyDocument) != trustUnknown {
		t.Errorf("AssumeRolePolicyDocument = %s, want the trust policy encoded as in RFC 3986", *role.AssumeRolePolicyDocument)
	}
	if age := time.Since(*role.CreateDate); age < -time.Second || age > time.Minute {
		t.Errorf("age of the role by CreateDate = %s, want less than a minute", age)
	}

	_, err = c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String(strings.ToUpper(*name)), AssumeRolePolicyDocument: aws.String(trustUnknown)})
	wantCode(t, err, "EntityAlreadyExists")

	_, err = c.IAM.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: name, PolicyDocument: aws.String(trustManaged)})
	succeed(t, err)
	_, err = c.IAM.TagRole(t.Context(), &iam.TagRoleInput{RoleName: name, Tags: []types.Tag{{Key: aws.String("HUB_cluster_name"), Value: aws.String("other")}}})
	succeed(t, err)
	_, err = c.IAM.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: name, TagKeys: []string{"empty"}})
	succeed(t, err)
	got, err := c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: name})
	succeed(t, err)
	if decoded(t, got.Role.AssumeRolePolicyDocument) != trustManaged || *got.Role.Description != "a managed cluster" {
		t.Errorf("GetRole() = %+v, want the new trust policy and the description", got.Role)
	}
	if len(got.Role.Tags) != 1 || *got.Role.Tags[0].Value != "other" {
		t.Errorf("tags = %+v, want one tag with the new value: keys are case insensitive", got.Role.Tags)
	}
	_, err = c.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: name, PolicyName: name, PolicyDocument: aws.String(readClusters)})
	succeed(t, err)
	policy, err := c.IAM.GetRolePolicy(t.Context(), &iam.GetRolePolicyInput{RoleName: name, PolicyName: name})
	succeed(t, err)
	if decoded(t, policy.PolicyDocument) != readClusters {
		t.Errorf("GetRolePolicy() = %s, want %s encoded", *policy.PolicyDocument, readClusters)
	}
	policies, err := c.IAM.ListRolePolicies(t.Context(), &iam.ListRolePoliciesInput{RoleName: name})
	succeed(t, err)
	if !slices.Equal(policies.PolicyNames, []string{*name}) {
		t.Errorf("ListRolePolicies() = %v, want %s", policies.PolicyNames, *name)
	}
	roles := s.Roles(hubAccount)
	if len(roles) != 1 || roles[0].InlinePolicies[*name] != readClusters || roles[0].TrustPolicy != trustManaged || roles[0].Tags["HUB_cluster_name"] != "other" {
		t.Errorf("Roles() = %+v, want one role with the new policies and tag", roles)
	}

	_, err = c.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: name})
	wantCode(t, err, "DeleteConflict")
	_, err = c.IAM.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: name, PolicyName: name})
	succeed(t, err)
	_, err = c.IAM.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: name, PolicyName: name})
	wantCode(t, err, "NoSuchEntity")
	_, err = c.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: name})
	succeed(t, err)
	_, err = c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: name})
	wantCode(t, err, "NoSuchEntity")
	if roles := s.Roles(hubAccount); len(roles) != 0 {
		t.Errorf("Roles() after DeleteRole = %+v, want none", roles)
	}
}

func TestManagedPolicies(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	role := aws.String("ocm-hub-1")
	createRole(t, c, *role, trustUnknown)
	arn, err := s.AttachPolicy(hubAccount, *role, "ocm-hub-access", readClusters)
	succeed(t, err)
	attached, err := c.IAM.ListAttachedRolePolicies(t.Context(), &iam.ListAttachedRolePoliciesInput{RoleName: role})
	succeed(t, err)
	if got := attached.AttachedPolicies; len(got) != 1 || *got[0].PolicyName != "ocm-hub-access" || *got[0].PolicyArn != arn {
		t.Errorf("ListAttachedRolePolicies() = %+v, want %s", got, arn)
	}
	_, err = c.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: role})
	wantCode(t, err, "DeleteConflict")
	_, err = c.IAM.DetachRolePolicy(t.Context(), &iam.DetachRolePolicyInput{RoleName: role, PolicyArn: &arn})
	succeed(t, err)
	_, err = c.IAM.DetachRolePolicy(t.Context(), &iam.DetachRolePolicyInput{RoleName: role, PolicyArn: &arn})
	wantCode(t, err, "NoSuchEntity")
	_, err = c.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: role})
	succeed(t, err)
	if _, err := s.AttachPolicy(hubAccount, *role, "ocm-hub-access", readClusters); err == nil {
		t.Errorf("AttachPolicy() of a role that does not exist = nil, want an error")
	}
}

func TestListRolePoliciesInPages(t *testing.T) {
	_, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	createRole(t, c, "role", trustUnknown)
	var want []string
	for i := range 7 {
		name := fmt.Sprintf("policy-%d", i)
		_, err := c.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("role"), PolicyName: &name, PolicyDocument: aws.String(readClusters)})
		succeed(t, err)
		want = append(want, name)
	}
	var got []string
	pages := 0
	for p := iam.NewListRolePoliciesPaginator(c.IAM, &iam.ListRolePoliciesInput{RoleName: aws.String("role"), MaxItems: aws.Int32(3)}); p.HasMorePages(); pages++ {
		page, err := p.NextPage(t.Context())
		succeed(t, err)
		got = append(got, page.PolicyNames...)
	}
	if pages != 3 || !slices.Equal(got, want) {
		t.Errorf("ListRolePolicies() = %v in %d pages, want %v in 3", got, pages, want)
	}
}

func TestRefusedRoles(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	manyTags := make([]types.Tag, 51)
	for i := range manyTags {
		manyTags[i] = types.Tag{Key: aws.String(fmt.Sprint("key", i)), Value: aws.String("value")}
	}
	oneTag := func(key, value string) []types.Tag {
		return []types.Tag{{Key: aws.String(key), Value: aws.String(value)}}
	}
	statement := func(s string) string { return `{"Version":"2012-10-17","Statement":[` + s + `]}` }
	for name, test := range map[string]struct {
		role, trust, path string
		tags              []types.Tag
		session           int32
		code              string
	}{
		"name too long":            {role: strings.Repeat("a", 65), code: "ValidationError"},
		"bad character":            {role: "a/b", code: "ValidationError"},
		"bad path":                 {path: "a", code: "ValidationError"},
		"session too short":        {session: 60, code: "ValidationError"},
		"51 tags":                  {tags: manyTags, code: "ValidationError"},
		"tag key too long":         {tags: oneTag(strings.Repeat("k", 129), ""), code: "ValidationError"},
		"tag value too long":       {tags: oneTag("k", strings.Repeat("v", 257)), code: "ValidationError"},
		"bad tag character":        {tags: oneTag("k", "a*b"), code: "ValidationError"},
		"reserved tag":             {tags: oneTag("aws:k", "v"), code: "InvalidInput"},
		"same tag twice":           {tags: slices.Concat(oneTag("k", "v"), oneTag("K", "v")), code: "InvalidInput"},
		"invalid JSON":             {trust: "{", code: "MalformedPolicyDocument"},
		"trailing JSON":            {trust: trustUnknown + "{}", code: "MalformedPolicyDocument"},
		"bad version":              {trust: strings.Replace(trustUnknown, "2012", "2013", 1), code: "MalformedPolicyDocument"},
		"no statement":             {trust: `{"Version":"2012-10-17"}`, code: "MalformedPolicyDocument"},
		"unknown element":          {trust: `{"Version":"2012-10-17","Statements":[]}`, code: "MalformedPolicyDocument"},
		"no principal":             {trust: statement(`{"Effect":"Allow","Action":"sts:AssumeRole"}`), code: "MalformedPolicyDocument"},
		"resource in trust":        {trust: statement(`{"Effect":"Allow","Action":"sts:AssumeRole","Principal":"*","Resource":"*"}`), code: "MalformedPolicyDocument"},
		"other action":             {trust: statement(`{"Effect":"Allow","Action":"iam:GetRole","Principal":"*"}`), code: "MalformedPolicyDocument"},
		"bad principal":            {trust: statement(`{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"arn:aws:iam::1:role/x"}}`), code: "MalformedPolicyDocument"},
		"other partition":          {trust: strings.Replace(trustUnknown, "arn:aws:", "arn:aws-cn:", 1), code: "MalformedPolicyDocument"},
		"bad condition":            {trust: statement(`{"Effect":"Allow","Action":"sts:AssumeRole","Principal":"*","Condition":{"Equals":{"aws:x":"y"}}}`), code: "MalformedPolicyDocument"},
		"principal does not exist": {trust: strings.Replace(trustUnknown, unknownAccount, hubAccount, 1), code: "MalformedPolicyDocument"},
		"policy too long":          {trust: trustUnknown + strings.Repeat(" ", 2048), code: "LimitExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			in := &iam.CreateRoleInput{RoleName: aws.String("role"), AssumeRolePolicyDocument: aws.String(trustUnknown), Tags: test.tags}
			if test.role != "" {
				in.RoleName = &test.role
			}
			if test.trust != "" {
				in.AssumeRolePolicyDocument = &test.trust
			}
			if test.path != "" {
				in.Path = &test.path
			}
			if test.session != 0 {
				in.MaxSessionDuration = &test.session
			}
			_, err := c.IAM.CreateRole(t.Context(), in)
			wantCode(t, err, test.code)
		})
	}
	if roles := s.Roles(hubAccount); len(roles) != 0 {
		t.Errorf("Roles() after rejected requests = %+v, want none", roles)
	}
}

func TestRefusedPolicies(t *testing.T) {
	_, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	createRole(t, c, "role", trustUnknown)
	for name, test := range map[string]struct{ document, code string }{
		"trust policy":            {trustUnknown, "MalformedPolicyDocument"},
		"no resource":             {strings.Replace(readClusters, `"Resource"`, `"Sid"`, 1), "MalformedPolicyDocument"},
		"resource is not an ARN":  {strings.Replace(readClusters, hubARN, "hub", 1), "MalformedPolicyDocument"},
		"action without a vendor": {strings.Replace(readClusters, "eks:ListClusters", "ListClusters", 1), "MalformedPolicyDocument"},
		"bad effect":              {strings.Replace(readClusters, "Allow", "allow", 1), "MalformedPolicyDocument"},
		"too long":                {strings.Replace(readClusters, hubARN, hubARN+strings.Repeat("x", 10240), 1), "LimitExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("role"), PolicyName: aws.String("p"), PolicyDocument: &test.document})
			wantCode(t, err, test.code)
		})
	}
}

// TestTrustedPrincipals checks which principals of a trust policy must exist in each mode.
func TestTrustedPrincipals(t *testing.T) {
	for name, test := range map[string]struct {
		mode           fakeaws.TrustPrincipals
		unknown, known string // error codes
	}{
		"known accounts": {fakeaws.ExistInKnownAccounts, "", "MalformedPolicyDocument"},
		"always":         {fakeaws.ExistAlways, "MalformedPolicyDocument", "MalformedPolicyDocument"},
		"never":          {fakeaws.NeedNotExist, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newHub(t, fakeaws.Options{TrustPrincipals: test.mode}, fakeaws.ModeAPI)
			addUser(t, s, managedAccount, "admin", fakeaws.AdminPolicy)
			for role, want := range map[string]struct{ trust, code string }{
				"unknown": {trustUnknown, test.unknown}, "known": {trustManaged, test.known},
			} {
				_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &role, AssumeRolePolicyDocument: &want.trust})
				if codeOf(err) != want.code {
					t.Errorf("CreateRole() with a trust policy for the principal of the %s account = %v, want code %q", role, err, want.code)
				}
			}
		})
	}
}

// TestTrustOfDeletedRole checks that a trust policy does not trust a role that was deleted and
// created again with the same name.
func TestTrustOfDeletedRole(t *testing.T) {
	s, hub := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	managed := clientsFor(s, addUser(t, s, managedAccount, "admin", fakeaws.AdminPolicy))
	createRole(t, managed, "managed", trustUnknown)
	createRole(t, hub, "hub", trustManaged)
	_, err := managed.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: aws.String("managed")})
	succeed(t, err)
	createRole(t, managed, "managed", trustUnknown)
	got, err := hub.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("hub")})
	succeed(t, err)
	if document := decoded(t, got.Role.AssumeRolePolicyDocument); strings.Contains(document, ":role/managed") || !strings.Contains(document, `"AROA`) {
		t.Errorf("trust policy = %s, want the unique id of the deleted role instead of the ARN", document)
	}
}

func TestUnknownOperations(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	_, err := c.IAM.ListUsers(t.Context(), &iam.ListUsersInput{})
	wantCode(t, err, "InvalidAction")
	answer, err := http.PostForm(s.URL(), url.Values{"Version": {"2010-05-08"}})
	succeed(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("status of a request without an action = %s, want 400", answer.Status)
	}
}

// TestPermissions checks that a user can perform only the actions that its policy allows.
func TestPermissions(t *testing.T) {
	s, admin := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	createRole(t, admin, "other", trustUnknown)
	policy := `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":["iam:Create*","iam:getrole"],"Resource":"arn:aws:iam::` + hubAccount + `:role/ocm-hub-*"},
		{"Effect":"Deny","Action":"iam:*","Resource":"arn:aws:iam::` + hubAccount + `:role/ocm-hub-denied"}]}`
	c := clientsFor(s, addUser(t, s, hubAccount, "creator", policy))
	createRole(t, c, "ocm-hub-1", trustUnknown)
	_, err := c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("ocm-hub-1")})
	succeed(t, err)
	for name, call := range map[string]func() error{
		"other role": func() error {
			_, err := c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("other")})
			return err
		},
		"other action": func() error {
			_, err := c.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: aws.String("ocm-hub-1")})
			return err
		},
		"denied": func() error {
			_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String("ocm-hub-denied"), AssumeRolePolicyDocument: aws.String(trustUnknown)})
			return err
		},
		"tags": func() error {
			_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String("ocm-hub-2"), AssumeRolePolicyDocument: aws.String(trustUnknown), Tags: []types.Tag{{Key: aws.String("k"), Value: aws.String("v")}}})
			return err
		},
		"path": func() error {
			_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String("ocm-hub-3"), Path: aws.String("/p/"), AssumeRolePolicyDocument: aws.String(trustUnknown)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, call(), "AccessDenied") })
	}
	if roles := s.Roles(hubAccount); len(roles) != 2 {
		t.Errorf("Roles() = %+v, want only other and ocm-hub-1", roles)
	}
}
