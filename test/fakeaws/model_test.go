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

// These tests compare the server with the models of IAM, STS and EKS in the generated source
// of the AWS SDK. The server must accept no request that AWS rejects, and return nothing that
// AWS does not define.

// validationCodes are the error codes for a request that lacks a required member. EKS returns
// BadRequestException for tags.
var validationCodes = map[string][]string{
	"iam": {"ValidationError"},
	"sts": {"ValidationError"},
	"eks": {"InvalidParameterException", "BadRequestException"},
}

// commonCodes are the errors that every AWS operation can return and no model lists.
var commonCodes = []string{
	"AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature",
	"InternalFailure", "InvalidClientTokenId", "InvalidParameterValue", "MissingAction", "MissingAuthenticationToken", "MissingParameter",
	"ServiceUnavailable", "SignatureDoesNotMatch", "Throttling", "ThrottlingException", "UnrecognizedClientException",
	"ValidationError", "SerializationException",
}

// absent are response members that AWS omits in some or all cases. Their structures have no
// required members.
var absent = map[string]bool{
	"AssumeRoleOutput.SourceIdentity": true, "AssumeRoleWithWebIdentityOutput.SourceIdentity": true,
	"RoleLastUsed.LastUsedDate": true, "RoleLastUsed.Region": true, // the role was never used
	"AccessConfigResponse.BootstrapClusterCreatorAdminPermissions": true, "Certificate.Active": true,
}

// always are members that AWS always sets, although the documentation does not mark them as
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
	fixture.policy, err = s.AttachPolicy(hubAccount, "role", "attached", readClusters)
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

// inputs returns one request for each operation. Each request succeeds.
func (s *modelFixture) inputs() map[string]map[string]any {
	role, empty, inline, hub := aws.String("role"), aws.String("empty"), aws.String("inline"), aws.String("hub")
	access, trust := aws.String(readClusters), aws.String(trustUnknown)
	return map[string]map[string]any{
		"iam": {
			"CreateRole":               &iam.CreateRoleInput{RoleName: aws.String("new"), AssumeRolePolicyDocument: trust, Tags: oneTag()},
			"GetRole":                  &iam.GetRoleInput{RoleName: role},
			"DeleteRole":               &iam.DeleteRoleInput{RoleName: empty},
			"UpdateAssumeRolePolicy":   &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: trust},
			"TagRole":                  &iam.TagRoleInput{RoleName: role, Tags: oneTag()},
			"UntagRole":                &iam.UntagRoleInput{RoleName: role, TagKeys: []string{"a"}},
			"PutRolePolicy":            &iam.PutRolePolicyInput{RoleName: role, PolicyName: inline, PolicyDocument: access},
			"GetRolePolicy":            &iam.GetRolePolicyInput{RoleName: role, PolicyName: inline},
			"ListRolePolicies":         &iam.ListRolePoliciesInput{RoleName: role},
			"DeleteRolePolicy":         &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: inline},
			"DetachRolePolicy":         &iam.DetachRolePolicyInput{RoleName: role, PolicyArn: &s.policy},
			"ListAttachedRolePolicies": &iam.ListAttachedRolePoliciesInput{RoleName: role},
			"GetOpenIDConnectProvider": &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &s.provider},
			"SimulatePrincipalPolicy":  &iam.SimulatePrincipalPolicyInput{PolicySourceArn: &s.role, ActionNames: []string{"eks:DescribeCluster"}, ResourceArns: []string{hubARN}},
		},
		"sts": {
			"GetCallerIdentity": &sts.GetCallerIdentityInput{},
			"AssumeRole":        &sts.AssumeRoleInput{RoleArn: &s.role, RoleSessionName: aws.String("session")},
			"AssumeRoleWithWebIdentity": &sts.AssumeRoleWithWebIdentityInput{
				RoleArn: &s.role, RoleSessionName: aws.String("session"), WebIdentityToken: &s.token,
			},
		},
		"eks": {
			"DescribeCluster": &eks.DescribeClusterInput{Name: hub},
			"CreateAccessEntry": &eks.CreateAccessEntryInput{
				ClusterName: hub, PrincipalArn: aws.String(strings.TrimSuffix(s.role, "role") + "other"), KubernetesGroups: []string{"group"}, Tags: map[string]string{"a": "b"},
			},
			"DescribeAccessEntry": &eks.DescribeAccessEntryInput{ClusterName: hub, PrincipalArn: &s.role},
			"UpdateAccessEntry":   &eks.UpdateAccessEntryInput{ClusterName: hub, PrincipalArn: &s.role, KubernetesGroups: []string{"group"}},
			"DeleteAccessEntry":   &eks.DeleteAccessEntryInput{ClusterName: hub, PrincipalArn: &s.role},
			"TagResource":         &eks.TagResourceInput{ResourceArn: &s.entry, Tags: map[string]string{"c": "d"}},
		},
	}
}

// call sends a request with the method of the SDK client for the operation. It disables the
// SDK's own validation.
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

// without returns a copy of the input that lacks the member of that path, such as RoleName
// or Tags[].Key, or false if the input has no such member. An empty list gets one element,
// with text in its other members.
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

// TestModelOfRequests checks that the server rejects a request of each operation without a
// member that the SDK's model requires.
func TestModelOfRequests(t *testing.T) {
	inputs := newModelFixture(t).inputs()
	for service, operations := range fakeaws.Operations() {
		model := readSDK(t, service)
		for _, operation := range slices.Sorted(slices.Values(operations)) {
			t.Run(service+"/"+operation, func(t *testing.T) {
				if inputs[service][operation] == nil {
					t.Fatalf("inputs() has no request of %s, want one that succeeds", operation)
				}
				for _, path := range model.requiredOf(operation) {
					if model.isLabel(operation, path) {
						continue // without it, the path is that of another operation
					}
					if strings.HasPrefix(path, "PolicyExclusionList[].") {
						continue // the server rejects the member with any content
					}
					fixture := newModelFixture(t)
					input, ok := without(fixture.inputs()[service][operation], path)
					if !ok {
						t.Errorf("inputs() has a request of %s without %s, want all required members", operation, path)
						continue
					}
					_, err := fixture.call(t.Context(), service, operation, input)
					if code := codeOf(err); !slices.Contains(validationCodes[service], code) {
						t.Errorf("%s without %s = %v (code %q), want code %v", operation, path, err, code, validationCodes[service])
					}
				}
			})
		}
	}
}

// TestModelOfErrors checks that the SDK's deserializer of each operation knows the error codes
// in the source of the operation.
func TestModelOfErrors(t *testing.T) {
	source := readFake(t)
	for service, names := range fakeaws.Operations() {
		model := readSDK(t, service)
		for _, name := range names {
			operation := source.operations[service][name]
			if operation == nil {
				t.Errorf("%s %s: no operation in the source, want one", service, name)
				continue
			}
			known := model.errorsOf(name)
			codes := source.codesOf(t, operation)
			if len(codes) == 0 && name != "GetCallerIdentity" {
				t.Errorf("%s %s: found no error codes in the source, want at least one", service, name)
			}
			for _, code := range codes {
				if !known[code] && !slices.Contains(commonCodes, code) {
					t.Errorf("%s %s returns the error %s, want one that the SDK knows for the operation: %v", service, name, code, slices.Sorted(maps.Keys(known)))
				}
			}
		}
	}
}

// TestModelOfAnswers checks that the SDK reads from the responses every member that the
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
					t.Errorf("response of %s has no %s, want all members that the service always sets", operation, path)
				}
			})
		}
	}
}

// unset returns the unset members of a response that the service always sets. A structure
// without required members must have all members except absent.
func (s *sdkModel) unset(operation string, structure reflect.Value) (paths []string) {
	name := structure.Type().Name()
	required, known := s.required[name]
	if !known {
		return nil // not a structure of the SDK: a time, or metadata
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
			wanted = !absent[path]
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

// TestModelOfDocuments checks that policy documents are URL-encoded, as the model specifies.
func TestModelOfDocuments(t *testing.T) {
	fixture := newModelFixture(t)
	role, err := fixture.clients.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("role")})
	succeed(t, err)
	document := aws.ToString(role.Role.AssumeRolePolicyDocument)
	decoded, err := url.QueryUnescape(document)
	if err != nil || !strings.HasPrefix(document, "%7B") || !strings.HasPrefix(decoded, "{") {
		t.Errorf("AssumeRolePolicyDocument = %q, want URL-encoded JSON", document)
	}
}
