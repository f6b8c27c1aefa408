package fakeaws_test

import (
	"context"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	"github.com/golang-jwt/jwt/v5"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// These tests compare the server with the models of IAM, STS and EKS as the generated
// source of the AWS SDK has them, so that the server accepts nothing that AWS refuses
// and returns nothing that AWS does not have.

// validationCodes are the codes with which a service refuses a request that lacks a
// required member. BadRequestException is that of the tags of EKS.
var validationCodes = map[string][]string{
	"iam": {"ValidationError"},
	"sts": {"ValidationError"},
	"eks": {"InvalidParameterException", "BadRequestException"},
}

// commonCodes are the errors that every operation of AWS has, and no model lists.
var commonCodes = []string{
	"AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature",
	"InternalFailure", "InvalidClientTokenId", "InvalidParameterValue", "MissingAction", "MissingAuthenticationToken", "MissingParameter",
	"ServiceUnavailable", "SignatureDoesNotMatch", "Throttling", "ThrottlingException", "UnrecognizedClientException",
	"ValidationError", "SerializationException",
}

// absent are members of answers that AWS leaves out in some or all cases, for
// structures whose documentation calls nothing required.
var absent = map[string]bool{
	"ListClustersOutput.NextToken": true, "ListAccessEntriesOutput.NextToken": true,
	"AssumeRoleOutput.SourceIdentity": true, "AssumeRoleWithWebIdentityOutput.SourceIdentity": true,
	"RoleLastUsed.LastUsedDate": true, "RoleLastUsed.Region": true, // the role was never used
	"AccessConfigResponse.BootstrapClusterCreatorAdminPermissions": true, "Certificate.Active": true,
	// The list of policies has neither.
	"ListPolicies Policy.Description": true, "ListPolicies Policy.Tags": true,
	// Only GetPolicyVersion has the document.
	"CreatePolicyVersion PolicyVersion.Document": true, "ListPolicyVersions PolicyVersion.Document": true,
}

// always are members that AWS always sets, though the documentation does not call them
// required.
var always = map[string][]string{
	"Role":    {"AssumeRolePolicyDocument", "MaxSessionDuration"},
	"Cluster": {"Name", "Arn", "CreatedAt", "Version", "Status", "Endpoint", "CertificateAuthority", "AccessConfig", "Tags", "Identity"},
}

// modelFixture is an account in which every operation can succeed, and its clients.
type modelFixture struct {
	clients                       clients
	policy, role, entry, provider string
	token                         string
}

func newModelFixture(t *testing.T) *modelFixture {
	t.Helper()
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	succeed(t, s.SetClusterEndpoint(hubARN, "https://hub.example.com", []byte("PEM")))
	tokens := newIssuer(t, jwt.SigningMethodES256)
	_, err := s.AddStaticOIDCProvider(hubAccount, issuer, tokens.jwks)
	succeed(t, err)
	fixture := &modelFixture{clients: c, token: tokens.token(t, nil)}
	fixture.provider = "arn:aws:iam::" + hubAccount + ":oidc-provider/" + issuer
	trust := toJSON(t, document(
		m{"Effect": "Allow", "Principal": m{"AWS": "arn:aws:iam::" + hubAccount + ":user/admin"}, "Action": "sts:AssumeRole"},
		m{
			"Effect": "Allow", "Principal": m{"Federated": fixture.provider}, "Action": "sts:AssumeRoleWithWebIdentity",
			"Condition": m{"StringEquals": m{issuer + ":sub": subject}},
		}))
	for _, name := range []string{"role", "empty", "other"} {
		_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{
			RoleName: &name, AssumeRolePolicyDocument: &trust, Description: aws.String("text"), Tags: oneTag(),
		})
		succeed(t, err)
	}
	_, err = c.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("role"), PolicyName: aws.String("inline"), PolicyDocument: aws.String(readClusters)})
	succeed(t, err)
	for _, name := range []string{"attached", "loose"} {
		created, err := c.IAM.CreatePolicy(t.Context(), &iam.CreatePolicyInput{
			PolicyName: &name, PolicyDocument: aws.String(readClusters), Description: aws.String("text"), Tags: oneTag(),
		})
		succeed(t, err)
		fixture.policy = *created.Policy.Arn
	}
	attached := strings.Replace(fixture.policy, "loose", "attached", 1)
	_, err = c.IAM.AttachRolePolicy(t.Context(), &iam.AttachRolePolicyInput{RoleName: aws.String("role"), PolicyArn: &attached})
	succeed(t, err)
	_, err = c.IAM.CreatePolicyVersion(t.Context(), &iam.CreatePolicyVersionInput{PolicyArn: &attached, PolicyDocument: aws.String(readClusters)})
	succeed(t, err)
	fixture.role = "arn:aws:iam::" + hubAccount + ":role/role"
	entry, err := c.EKS.CreateAccessEntry(t.Context(), &eks.CreateAccessEntryInput{
		ClusterName: aws.String("hub"), PrincipalArn: &fixture.role, KubernetesGroups: []string{"group"}, Tags: map[string]string{"a": "b"},
	})
	succeed(t, err)
	fixture.entry = *entry.AccessEntry.AccessEntryArn
	return fixture
}

func oneTag() []iamtypes.Tag { return []iamtypes.Tag{{Key: aws.String("a"), Value: aws.String("b")}} }

// inputs are requests that succeed, one for each operation.
func (s *modelFixture) inputs() map[string]map[string]any {
	role, empty, inline, hub := aws.String("role"), aws.String("empty"), aws.String("inline"), aws.String("hub")
	access, trust := aws.String(readClusters), aws.String(trustUnknown)
	attached := aws.String(strings.Replace(s.policy, "loose", "attached", 1))
	return map[string]map[string]any{
		"iam": {
			"CreateRole":               &iam.CreateRoleInput{RoleName: aws.String("new"), AssumeRolePolicyDocument: trust, Tags: oneTag()},
			"GetRole":                  &iam.GetRoleInput{RoleName: role},
			"ListRoles":                &iam.ListRolesInput{},
			"UpdateRole":               &iam.UpdateRoleInput{RoleName: role, Description: aws.String("text")},
			"UpdateRoleDescription":    &iam.UpdateRoleDescriptionInput{RoleName: role, Description: aws.String("text")},
			"DeleteRole":               &iam.DeleteRoleInput{RoleName: empty},
			"UpdateAssumeRolePolicy":   &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: trust},
			"TagRole":                  &iam.TagRoleInput{RoleName: role, Tags: oneTag()},
			"UntagRole":                &iam.UntagRoleInput{RoleName: role, TagKeys: []string{"a"}},
			"ListRoleTags":             &iam.ListRoleTagsInput{RoleName: role},
			"PutRolePolicy":            &iam.PutRolePolicyInput{RoleName: role, PolicyName: inline, PolicyDocument: access},
			"GetRolePolicy":            &iam.GetRolePolicyInput{RoleName: role, PolicyName: inline},
			"ListRolePolicies":         &iam.ListRolePoliciesInput{RoleName: role},
			"DeleteRolePolicy":         &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: inline},
			"AttachRolePolicy":         &iam.AttachRolePolicyInput{RoleName: role, PolicyArn: &s.policy},
			"DetachRolePolicy":         &iam.DetachRolePolicyInput{RoleName: role, PolicyArn: attached},
			"ListAttachedRolePolicies": &iam.ListAttachedRolePoliciesInput{RoleName: role},
			"CreatePolicy":             &iam.CreatePolicyInput{PolicyName: aws.String("new"), PolicyDocument: access, Description: aws.String("text"), Tags: oneTag()},
			"GetPolicy":                &iam.GetPolicyInput{PolicyArn: attached},
			"ListPolicies":             &iam.ListPoliciesInput{},
			"DeletePolicy":             &iam.DeletePolicyInput{PolicyArn: &s.policy},
			"CreatePolicyVersion":      &iam.CreatePolicyVersionInput{PolicyArn: &s.policy, PolicyDocument: access},
			"GetPolicyVersion":         &iam.GetPolicyVersionInput{PolicyArn: attached, VersionId: aws.String("v2")},
			"ListPolicyVersions":       &iam.ListPolicyVersionsInput{PolicyArn: attached},
			"DeletePolicyVersion":      &iam.DeletePolicyVersionInput{PolicyArn: attached, VersionId: aws.String("v2")},
			"GetOpenIDConnectProvider": &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &s.provider},
			"SimulatePrincipalPolicy":  &iam.SimulatePrincipalPolicyInput{PolicySourceArn: &s.role, ActionNames: []string{"eks:DescribeCluster"}, ResourceArns: []string{hubARN}},
			"SetDefaultPolicyVersion":  &iam.SetDefaultPolicyVersionInput{PolicyArn: attached, VersionId: aws.String("v2")},
		},
		"sts": {
			"GetCallerIdentity": &sts.GetCallerIdentityInput{},
			"AssumeRole":        &sts.AssumeRoleInput{RoleArn: &s.role, RoleSessionName: aws.String("session")},
			"AssumeRoleWithWebIdentity": &sts.AssumeRoleWithWebIdentityInput{
				RoleArn: &s.role, RoleSessionName: aws.String("session"), WebIdentityToken: &s.token,
			},
		},
		"eks": {
			"ListClusters":    &eks.ListClustersInput{},
			"DescribeCluster": &eks.DescribeClusterInput{Name: hub},
			"CreateAccessEntry": &eks.CreateAccessEntryInput{
				ClusterName: hub, PrincipalArn: aws.String(strings.TrimSuffix(s.role, "role") + "other"), KubernetesGroups: []string{"group"}, Tags: map[string]string{"a": "b"},
			},
			"ListAccessEntries":   &eks.ListAccessEntriesInput{ClusterName: hub},
			"DescribeAccessEntry": &eks.DescribeAccessEntryInput{ClusterName: hub, PrincipalArn: &s.role},
			"UpdateAccessEntry":   &eks.UpdateAccessEntryInput{ClusterName: hub, PrincipalArn: &s.role, KubernetesGroups: []string{"group"}},
			"DeleteAccessEntry":   &eks.DeleteAccessEntryInput{ClusterName: hub, PrincipalArn: &s.role},
			"TagResource":         &eks.TagResourceInput{ResourceArn: &s.entry, Tags: map[string]string{"c": "d"}},
			"UntagResource":       &eks.UntagResourceInput{ResourceArn: &s.entry, TagKeys: []string{"a"}},
			"ListTagsForResource": &eks.ListTagsForResourceInput{ResourceArn: &s.entry},
		},
	}
}

// call sends a request by the method of the SDK's client with that name. The SDK's own
// validation is left out.
func (s *modelFixture) call(ctx context.Context, service, operation string, input any) (any, error) {
	client := reflect.ValueOf(map[string]any{"iam": s.clients.IAM, "sts": s.clients.STS, "eks": s.clients.EKS}[service])
	method := client.MethodByName(operation)
	unchecked := func(stack *middleware.Stack) error {
		// Operations without required members have no validation.
		_, _ = stack.Initialize.Remove("OperationInputValidation")
		return nil
	}
	options := reflect.New(method.Type().In(2).Elem().In(0).Elem()).Type() // *Options of the service
	option := reflect.MakeFunc(reflect.FuncOf([]reflect.Type{options}, nil, false), func(args []reflect.Value) []reflect.Value {
		field := args[0].Elem().FieldByName("APIOptions")
		field.Set(reflect.Append(field, reflect.ValueOf(unchecked)))
		return nil
	})
	out := method.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(input), option})
	err, _ := out[1].Interface().(error)
	return out[0].Interface(), err
}

// without returns a copy of the input that lacks the member of that path, such as
// RoleName or Tags[].Key; false if the input has no such member. A list that is empty gets
// an element whose other members have some text.
func without(input any, path string) (any, bool) {
	changed := reflect.New(reflect.TypeOf(input).Elem())
	changed.Elem().Set(reflect.ValueOf(input).Elem())
	value := changed.Elem()
	name, rest, _ := strings.Cut(path, "[].")
	value = value.FieldByName(name)
	if rest != "" {
		list := reflect.MakeSlice(value.Type(), max(1, value.Len()), max(1, value.Len()))
		if value.Len() == 0 {
			for i := range list.Index(0).NumField() {
				if member := list.Index(0).Field(i); member.Type() == reflect.TypeFor[*string]() {
					member.Set(reflect.ValueOf(aws.String("text")))
				}
			}
		}
		reflect.Copy(list, value)
		value.Set(list)
		value = list.Index(0).FieldByName(rest)
	}
	if value.IsZero() {
		return nil, false
	}
	value.SetZero()
	return changed.Interface(), true
}

// TestModelOfRequests checks that every operation has a request that succeeds, and that
// the same request without a member that the SDK's model requires is refused.
func TestModelOfRequests(t *testing.T) {
	inputs := newModelFixture(t).inputs()
	for service, operations := range fakeaws.Operations() {
		model := readSDK(t, service)
		for _, operation := range slices.Sorted(slices.Values(operations)) {
			t.Run(service+"/"+operation, func(t *testing.T) {
				if inputs[service][operation] == nil {
					t.Fatal("no request of this operation, want one that succeeds")
				}
				for _, path := range model.requiredOf(operation) {
					if model.isLabel(operation, path) {
						continue // without it, the path is that of another operation
					}
					if strings.HasPrefix(path, "PolicyExclusionList[].") {
						continue // the server refuses the member, whatever it contains
					}
					fixture := newModelFixture(t)
					input, ok := without(fixture.inputs()[service][operation], path)
					if !ok {
						t.Errorf("the request that succeeds has no %s, which is required", path)
						continue
					}
					_, err := fixture.call(t.Context(), service, operation, input)
					if code := codeOf(err); !slices.Contains(validationCodes[service], code) {
						t.Errorf("%s without %s: error %v (code %q), want code %v", operation, path, err, code, validationCodes[service])
					}
				}
			})
		}
	}
}

// TestModelOfEnums checks that a value which is none of the SDK's enumeration is refused.
func TestModelOfEnums(t *testing.T) {
	fixture := newModelFixture(t)
	for service, operations := range fixture.inputs() {
		for operation, input := range operations {
			structure := reflect.TypeOf(input).Elem()
			for i := range structure.NumField() {
				field := structure.Field(i)
				if field.Type.Kind() != reflect.String || field.Type.PkgPath() == "" {
					continue
				}
				changed := reflect.New(structure)
				changed.Elem().Set(reflect.ValueOf(input).Elem())
				changed.Elem().Field(i).SetString("no-such-value")
				_, err := fixture.call(t.Context(), service, operation, changed.Interface())
				if code := codeOf(err); !slices.Contains(validationCodes[service], code) {
					t.Errorf("%s with %s no-such-value: error %v (code %q), want code %v", operation, field.Name, err, code, validationCodes[service])
				}
			}
		}
	}
}

// TestModelOfErrors checks the error codes in the source of every operation against
// those that the SDK's deserializer of the operation knows.
func TestModelOfErrors(t *testing.T) {
	source := readFake(t)
	for service, names := range fakeaws.Operations() {
		model := readSDK(t, service)
		for _, name := range names {
			operation := source.operations[service][name]
			if operation == nil {
				t.Errorf("%s %s: not found in the source", service, name)
				continue
			}
			known := model.errorsOf(name)
			codes := source.codesOf(t, operation)
			if len(codes) == 0 && name != "GetCallerIdentity" {
				t.Errorf("%s %s: no error codes found in the source, want some", service, name)
			}
			for _, code := range codes {
				if !known[code] && !slices.Contains(commonCodes, code) {
					t.Errorf("%s %s returns the error %s, which the SDK does not know for it; it knows %v", service, name, code, slices.Sorted(maps.Keys(known)))
				}
			}
		}
	}
}

// TestModelOfAnswers checks that the SDK reads every member from the answers that the
// service always sets.
func TestModelOfAnswers(t *testing.T) {
	for service, operations := range fakeaws.Operations() {
		model := readSDK(t, service)
		for _, operation := range operations {
			t.Run(service+"/"+operation, func(t *testing.T) {
				fixture := newModelFixture(t)
				out, err := fixture.call(t.Context(), service, operation, fixture.inputs()[service][operation])
				succeed(t, err)
				for _, path := range model.unset(operation, reflect.ValueOf(out).Elem()) {
					t.Errorf("the answer has no %s, which the service always sets", path)
				}
			})
		}
	}
}

// unset returns the members of an answer that are not set and always should be. A
// structure whose documentation calls no member required should have all but the absent.
func (s *sdkModel) unset(operation string, structure reflect.Value) (paths []string) {
	name := structure.Type().Name()
	required, known := s.required[name]
	if !known {
		return nil // not one of the SDK's: a time, or metadata
	}
	required = append(slices.Clone(required), always[name]...)
	for i := range structure.NumField() {
		field, value := structure.Type().Field(i), structure.Field(i)
		if !field.IsExported() || field.Name == "ResultMetadata" || field.Name == "Marker" {
			continue
		}
		path := name + "." + field.Name
		wanted := slices.Contains(required, field.Name)
		if len(required) == 0 {
			wanted = !absent[path] && !absent[operation+" "+path]
		}
		// False and zero are values.
		isSet := !value.IsZero() || value.Kind() == reflect.Bool || value.Kind() == reflect.Int32
		if wanted && !isSet {
			paths = append(paths, path)
		}
		switch {
		case value.Kind() == reflect.Pointer && !value.IsNil() && value.Elem().Kind() == reflect.Struct:
			paths = append(paths, s.unset(operation, value.Elem())...)
		case value.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct:
			for j := range value.Len() {
				paths = append(paths, s.unset(operation, value.Index(j))...)
			}
		}
	}
	return paths
}

// TestModelOfDocuments checks that policy documents are in the encoding of URLs, which is
// how the model has them.
func TestModelOfDocuments(t *testing.T) {
	fixture := newModelFixture(t)
	role, err := fixture.clients.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("role")})
	succeed(t, err)
	document := aws.ToString(role.Role.AssumeRolePolicyDocument)
	decoded, err := url.QueryUnescape(document)
	if err != nil || !strings.HasPrefix(document, "%7B") || !strings.HasPrefix(decoded, "{") {
		t.Errorf("document is %q, want one in JSON, encoded for URLs", document)
	}
}
