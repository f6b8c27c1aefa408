package preflight_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/hub-apiserver/pkg/agent/preflight"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const (
	writePolicies = `{apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [get, create, update, patch, delete]}`
	secretsPolicy = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: NS-p}, spec: {
		paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "params.data.size() > 100", messageExpression: "string(params.data.password)"}],
		matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}}}`
	plainPolicy = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: NS-p}, spec: {
		validations: [{expression: "true"}],
		matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}}}`
	bindSecret = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: NS-p}, spec: {
		policyName: NS-p, paramRef: {name: password, namespace: NS, parameterNotFoundAction: Deny}, validationActions: [Warn]}}`
	certificate = `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: NS-c}, spec: {
		signerName: example.com/any, usages: [client auth], request: "LS0tLS0="}}`
	selfReview    = `{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview, metadata: {name: NS-s}}`
	aggregated    = `{apiVersion: lab.example.com/v1, kind: Anything, metadata: {name: NS-a}}`
	customObject  = `{apiVersion: crd.example.com/v1, kind: Anything, metadata: {name: NS-a}}`
	writeAnything = `{apiGroups: [lab.example.com, crd.example.com], resources: [anythings], verbs: [get, create, update, patch, delete]}`
	aggregatedAPI = `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.lab.example.com}, spec: {
		group: lab.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, insecureSkipTLSVerify: true, service: {name: none, namespace: none}}}`
)

// TestReviewOfCallerRequests checks kinds for which the API server requires permissions of the caller
// in addition to verbs on the object. In mode Review the caller is the agent, so the agent checks
// these permissions for the executor. It denies objects for which it cannot check them.
func TestReviewOfCallerRequests(t *testing.T) {
	t.Parallel()
	newFixture(t).make(aggregatedAPI)
	for _, test := range []struct {
		name  string
		there []string
		rules []string
		text  string
		// want is part of the message, "" if the object is allowed. server is set if the API
		// server denies it to the executor as well.
		want   string
		server bool
	}{
		{"a policy that reads Secrets", nil, []string{writePolicies}, secretsPolicy, "secrets", true},
		{"a policy that reads Secrets, with permission to read them", nil, []string{writePolicies, `{apiGroups: [""], resources: [secrets], verbs: [get]}`}, secretsPolicy, "", false},
		{"a policy without parameters", nil, []string{writePolicies}, plainPolicy, "", false},
		{"a binding that reads a Secret", []string{secretsPolicy}, []string{writePolicies}, bindSecret, "lacks permissions that the API server requires", true},
		{"a binding that reads a Secret, with all permissions on resources", []string{secretsPolicy}, []string{all}, bindSecret, "", false},
		{"a request for a certificate", nil, []string{`{apiGroups: [certificates.k8s.io], resources: ["*"], verbs: ["*"]}`}, certificate, "requester", false},
		{"a review of the caller", nil, []string{`{apiGroups: [authentication.k8s.io], resources: ["*"], verbs: ["*"]}`}, selfReview, "describe the agent", false},
		{"an object of an aggregated API", nil, []string{writeAnything}, aggregated, "aggregated", false},
		{"an object of an aggregated API, with all permissions", nil, []string{all, allURLs}, aggregated, "", false},
		{"an object of a CustomResourceDefinition", nil, []string{writeAnything}, customObject, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.make(test.there...)
			f.allow("", test.rules...)
			for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeServerSideApply} {
				request := f.request(strategy, test.text)
				executors := f.executors(preflight.Review, nil)
				if test.want == "" {
					f.admitted(executors, request)
				} else if refusal := f.refused(executors, request); !strings.Contains(refusal.Manifests[0], test.want) {
					t.Errorf("%s: Admit() = %q, want a refusal about %q", strategy, refusal.Manifests[0], test.want)
				}
				// In mode Impersonate the API server authorizes the executor.
				f.admitted(f.executors(preflight.Impersonate, nil), request)
			}
			if !test.server {
				return
			}
			request := f.request(workv1.UpdateStrategyTypeUpdate, test.text)
			client := f.admitted(f.executors(preflight.Impersonate, nil), request)
			if err := apply(t.Context(), client, request.Targets[0]); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "permission") {
				t.Errorf("apply() as the executor = %v, want Invalid with the missing permission", err)
			}
		})
	}
}

// TestReviewRequiresAPIServices checks that an agent without permission to get APIServices denies
// objects that an aggregated API could serve.
func TestReviewRequiresAPIServices(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow("", writeAnything)
	config, allow := f.agent(append(review, writeAnything)...)
	refusal := f.refused(f.executors(preflight.Review, config), f.request(workv1.UpdateStrategyTypeUpdate, customObject))
	if !strings.Contains(refusal.Manifests[0], "apiservices") {
		t.Errorf("Admit() = %q, want a refusal with the rule about apiservices", refusal.Manifests[0])
	}
	allow(`{apiGroups: [apiregistration.k8s.io], resources: [apiservices], verbs: [get]}`)
	await.Eventually(f, "the ManifestWork is admitted", func() error {
		_, err := f.executors(preflight.Review, config).Admit(t.Context(), f.request(workv1.UpdateStrategyTypeUpdate, customObject))
		return err
	})
}
