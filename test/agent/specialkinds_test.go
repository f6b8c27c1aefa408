package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// specialKinds are manifests of kinds that affect other objects or are not stored as objects, and
// manifests with unusual names or content. An executor with permission to write ConfigMaps must not
// be able to apply any of them.
var specialKinds = map[string]string{
	"list":           `{apiVersion: v1, kind: List, metadata: {name: l}, items: [{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: NS}}]}`,
	"configmap-list": `{apiVersion: v1, kind: ConfigMapList, metadata: {name: l, namespace: NS}, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}}]}`,
	"crd":            `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.NS.example.com}, spec: {group: NS.example.com, scope: Cluster, names: {plural: things, kind: Thing}, conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/"}}}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`,
	"csr":            `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: NS-c}, spec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: "LS0tLS0="}, status: {conditions: [{type: Approved, status: "True"}]}}`,
	"webhook":        `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: NS-w}, webhooks: []}`,
	"mutating":       `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: NS-w}, webhooks: []}`,
	"policy":         `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: NS-p}, spec: {paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "true"}]}}`,
	"policy-binding": `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: NS-p}, spec: {policyName: NS-p, validationActions: [Warn]}}`,
	"api-service":    `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.NS.example.com}, spec: {group: NS.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, insecureSkipTLSVerify: true, service: {name: a, namespace: NS}}}`,
	"namespace":      `{apiVersion: v1, kind: Namespace, metadata: {name: open-cluster-management-agent}}`,
	"token-secret":   `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: t, namespace: NS, annotations: {kubernetes.io/service-account.name: worker}}}`,
	"token-request":  `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: worker, namespace: NS}, spec: {audiences: [a]}}`,
	"token-review":   `{apiVersion: authentication.k8s.io/v1, kind: TokenReview, metadata: {name: r}, spec: {token: a}}`,
	"self-review":    `{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview, metadata: {name: r}}`,
	"access-review":  `{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, metadata: {name: r}, spec: {user: a, nonResourceAttributes: {path: /, verb: get}}}`,
	"self-access":    `{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, metadata: {name: r}, spec: {nonResourceAttributes: {path: /, verb: get}}}`,
	"self-rules":     `{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, metadata: {name: r}, spec: {namespace: NS}}`,
	"local-review":   `{apiVersion: authorization.k8s.io/v1, kind: LocalSubjectAccessReview, metadata: {name: r, namespace: NS}, spec: {user: a}}`,
	"binding":        `{apiVersion: v1, kind: Binding, metadata: {name: p, namespace: NS}, target: {kind: Node, name: n}}`,
	"scale":          `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d, namespace: NS}, spec: {replicas: 1}}`,
	"eviction":       `{apiVersion: policy/v1, kind: Eviction, metadata: {name: p, namespace: NS}}`,
	"options":        `{apiVersion: v1, kind: DeleteOptions, metadata: {name: p, namespace: NS}}`,
	"status":         `{apiVersion: v1, kind: Status, metadata: {name: p, namespace: NS}}`,
	"component":      `{apiVersion: v1, kind: ComponentStatus, metadata: {name: etcd-0}}`,
	"record":         `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, metadata: {name: NS-x}, spec: {hubHash: a, agentID: NS, manifestWorkName: other}}`,
	"lease":          `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l, namespace: open-cluster-management-agent}}`,
	"identity":       `{apiVersion: v1, kind: Secret, metadata: {name: hub-kubeconfig-secret, namespace: open-cluster-management-agent}, data: {}}`,
	"agents-role":    `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS-b}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: worker, namespace: NS}]}`,
	"impersonate":    `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: i, namespace: NS}, rules: [{apiGroups: [""], resources: [users, serviceaccounts/token], verbs: [impersonate, create]}]}`,
	"other-group":    `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: e, namespace: NS}}`,
	"other-version":  `{apiVersion: v0, kind: ConfigMap, metadata: {name: a, namespace: NS}}`,
	"path":           `{apiVersion: v1, kind: "configmaps/../secrets", metadata: {name: a, namespace: NS}}`,
	"odd-name":       `{apiVersion: v1, kind: ConfigMap, metadata: {name: "a/../b", namespace: NS}}`,
	"deep":           "{apiVersion: v1, kind: ConfigMap, metadata: {name: deep, namespace: NS}, data: " + strings.Repeat("[", 400) + strings.Repeat("]", 400) + "}",
}

// testSpecialKinds checks that none of the manifests extends the permissions of an executor, and that
// none blocks other ManifestWorks, with or without an executor.
func testSpecialKinds(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.run()
	var names []string
	for kind, manifest := range specialKinds {
		names = append(names, c.create("-"+kind, c.actsAs(), manifest))
	}
	for _, name := range names {
		work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
		if applied := appliedOf(work, 0); applied == nil || applied.Message == "" {
			t.Errorf("%s: Applied of the manifest = %v, want a message", name, applied)
		}
	}
	bindings, err := c.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), c.name+"-b", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("Get(ClusterRoleBinding %s-b) = %v, %v, want NotFound", c.name, bindings, err)
	}

	// Without an executor, the agent applies manifests as itself, with all permissions. These
	// manifests still fail.
	alone := map[string]string{}
	for _, kind := range []string{"list", "configmap-list", "token-request", "binding", "scale", "eviction", "options", "status", "record", "path", "odd-name", "deep"} {
		alone[kind] = c.create("-agent-"+kind, nil, specialKinds[kind])
	}
	for kind, name := range alone {
		work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
		if applied := appliedOf(work, 0); applied == nil || applied.Message == "" {
			t.Errorf("%s without executor: Applied of the manifest = %v, want a message", kind, applied)
		}
	}
	// The agent reports condition Applied for kinds that can be created but not read.
	reviews := []string{"token-review", "self-review", "access-review", "self-access", "self-rules", "local-review"}
	for _, kind := range reviews {
		name := c.create("-agent-"+kind, reports, specialKinds[kind])
		eventually(t, "ManifestWork "+name+" has condition Applied", func(ctx context.Context) error {
			work, err := c.works().Get(ctx, name, metav1.GetOptions{})
			if err == nil && meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied) == nil {
				err = fmt.Errorf("conditions = %v", work.Status.Conditions)
			}
			return err
		})
		alone[kind] = name
	}

	name := c.create("-last", c.actsAs(), configMap("last", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.grantRules(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}})
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	for _, name := range append(names, name) {
		c.delete(name)
	}
	for _, name := range alone {
		c.delete(name)
		names = append(names, name)
	}
	for _, name := range names {
		c.gone(name)
	}
}
