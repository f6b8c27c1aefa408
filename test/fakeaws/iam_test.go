package fakeaws_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

func tags(pairs ...string) (list []iamtypes.Tag) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, iamtypes.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return list
}

func TestRejectedRoles(t *testing.T) {
	c := newCloud(t)
	var many []string
	for i := range 51 {
		many = append(many, fmt.Sprint("key", i), "value")
	}
	statement := func(s string) string { return `{"Version":"2012-10-17","Statement":[` + s + `]}` }
	for name, test := range map[string]struct {
		in   iam.CreateRoleInput
		code string
	}{
		"name too long":      {iam.CreateRoleInput{RoleName: aws.String(strings.Repeat("a", 65))}, "ValidationError"},
		"bad character":      {iam.CreateRoleInput{RoleName: aws.String("a/b")}, "ValidationError"},
		"bad path":           {iam.CreateRoleInput{Path: aws.String("a")}, "ValidationError"},
		"boundary":           {iam.CreateRoleInput{PermissionsBoundary: aws.String("arn:aws:iam::1:policy/p")}, "ValidationError"},
		"51 tags":            {iam.CreateRoleInput{Tags: tags(many...)}, "ValidationError"},
		"tag key too long":   {iam.CreateRoleInput{Tags: tags(strings.Repeat("k", 129), "")}, "ValidationError"},
		"tag value too long": {iam.CreateRoleInput{Tags: tags("k", strings.Repeat("v", 257))}, "ValidationError"},
		"bad tag character":  {iam.CreateRoleInput{Tags: tags("k", "a*b")}, "ValidationError"},
		"same tag twice":     {iam.CreateRoleInput{Tags: tags("k", "v", "K", "v")}, "InvalidInput"},

		"invalid JSON":             {trusting("{"), "MalformedPolicyDocument"},
		"trailing JSON":            {trusting(trustUnknown + "{}"), "MalformedPolicyDocument"},
		"bad version":              {trusting(strings.Replace(trustUnknown, "2012", "2013", 1)), "MalformedPolicyDocument"},
		"no statement":             {trusting(`{"Version":"2012-10-17"}`), "MalformedPolicyDocument"},
		"unknown element":          {trusting(`{"Version":"2012-10-17","Statements":[]}`), "MalformedPolicyDocument"},
		"no principal":             {trusting(statement(`{"Effect":"Allow","Action":"sts:AssumeRole"}`)), "MalformedPolicyDocument"},
		"resource in trust":        {trusting(statement(`{"Effect":"Allow","Action":"sts:AssumeRole","Principal":"*","Resource":"*"}`)), "MalformedPolicyDocument"},
		"other action":             {trusting(statement(`{"Effect":"Allow","Action":"iam:GetRole","Principal":"*"}`)), "MalformedPolicyDocument"},
		"bad principal":            {trusting(statement(`{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"arn:aws:iam::1:role/x"}}`)), "MalformedPolicyDocument"},
		"other partition":          {trusting(strings.Replace(trustUnknown, "arn:aws:", "arn:aws-cn:", 1)), "MalformedPolicyDocument"},
		"other condition":          {trusting(strings.Replace(trustManaged, "StringEquals", "StringNotEquals", 1)), "MalformedPolicyDocument"},
		"principal does not exist": {trusting(trustManaged), "MalformedPolicyDocument"},
		"policy too long":          {trusting(trustUnknown + strings.Repeat(" ", 2048)), "LimitExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			in := test.in
			if in.RoleName == nil {
				in.RoleName = aws.String("role")
			}
			if in.AssumeRolePolicyDocument == nil {
				in.AssumeRolePolicyDocument = aws.String(trustUnknown)
			}
			_, err := c.hub.IAM.CreateRole(t.Context(), &in)
			wantCode(t, err, test.code)
		})
	}
	if roles := c.Roles(hubAccount); len(roles) != 0 {
		t.Errorf("Roles() after rejected requests = %+v, want none", roles)
	}
	c.hub.createRole(t, "role", trustUnknown)
	for name, test := range map[string]struct{ document, code string }{
		"trust policy":            {trustUnknown, "MalformedPolicyDocument"},
		"no resource":             {strings.Replace(readClusters, `"Resource"`, `"Sid"`, 1), "MalformedPolicyDocument"},
		"resource is not an ARN":  {strings.Replace(readClusters, hubARN, "hub", 1), "MalformedPolicyDocument"},
		"action without a vendor": {strings.Replace(readClusters, "eks:ListClusters", "ListClusters", 1), "MalformedPolicyDocument"},
		"bad effect":              {strings.Replace(readClusters, "Allow", "allow", 1), "MalformedPolicyDocument"},
		"too long":                {strings.Replace(readClusters, hubARN, hubARN+strings.Repeat("x", 10240), 1), "LimitExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.hub.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("role"), PolicyName: aws.String("p"), PolicyDocument: &test.document})
			wantCode(t, err, test.code)
		})
	}
}

func trusting(document string) iam.CreateRoleInput {
	return iam.CreateRoleInput{AssumeRolePolicyDocument: &document}
}

func TestRejectedAccessEntries(t *testing.T) {
	c := newCloud(t)
	c.hub.createRole(t, "ocm-hub-1", trustUnknown)
	const invalid = "InvalidParameterException"
	for name, test := range map[string]struct {
		change func(*eks.CreateAccessEntryInput)
		code   string
	}{
		"unknown role": {func(in *eks.CreateAccessEntryInput) { *in.PrincipalArn += "x" }, invalid},
		"unknown account": {func(in *eks.CreateAccessEntryInput) {
			*in.PrincipalArn = "arn:aws:iam::" + unknownAccount + ":role/role"
		}, invalid},
		"session": {func(in *eks.CreateAccessEntryInput) {
			*in.PrincipalArn = "arn:aws:sts::" + hubAccount + ":assumed-role/ocm-hub-1/me"
		}, invalid},
		"group of system": {func(in *eks.CreateAccessEntryInput) {
			in.KubernetesGroups = []string{"fine", "system:open-cluster-management:c"}
		}, invalid},
		"group of eks":    {func(in *eks.CreateAccessEntryInput) { in.KubernetesGroups = []string{"eks:x"} }, invalid},
		"user of system":  {func(in *eks.CreateAccessEntryInput) { in.Username = aws.String("system:x") }, invalid},
		"any user":        {func(in *eks.CreateAccessEntryInput) { in.Username = aws.String("{{SessionName}}") }, invalid},
		"unknown type":    {func(in *eks.CreateAccessEntryInput) { in.Type = aws.String("OTHER") }, invalid},
		"groups of nodes": {func(in *eks.CreateAccessEntryInput) { in.Type = aws.String("EC2_LINUX") }, invalid},
		"reserved tag":    {func(in *eks.CreateAccessEntryInput) { in.Tags = map[string]string{"aws:x": "y"} }, invalid},
		"unknown cluster": {func(in *eks.CreateAccessEntryInput) { in.ClusterName = aws.String("other") }, "ResourceNotFoundException"},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, c.hub.createEntry(t, test.change), test.code) })
	}
	succeed(t, c.hub.createEntry(t, nil))
	wantCode(t, c.hub.createEntry(t, nil), "ResourceInUseException")
	_, err := c.hub.EKS.UpdateAccessEntry(t.Context(), &eks.UpdateAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole), KubernetesGroups: []string{"system:masters"}})
	wantCode(t, err, invalid)
	succeed(t, c.AddCluster(hubARN, fakeaws.ModeConfigMap))
	_, err = c.hub.EKS.DescribeAccessEntry(t.Context(), &eks.DescribeAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
	wantCode(t, err, "InvalidRequestException")
}
