package executor_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

var (
	// managed is a real cluster that all tests share.
	managed *localhub.Cluster
	cases   atomic.Int32
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "executor")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := localhub.ReserveShared(1, 0); err != nil {
		log.Print(err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if managed, err = localhub.NewCluster(localhub.ClusterOptions{Name: "managed", Dir: dir, NoFsync: true, NoControllerManager: true}); err != nil {
		log.Print(err)
		return 1
	}
	defer func() {
		if err := managed.Kill(); err != nil {
			log.Print(err)
		}
	}()
	if err := managed.Start(ctx); err != nil {
		log.Print(err)
		return 1
	}
	return m.Run()
}

// fixture is a namespace of the managed cluster and the name of an executor in it. The ServiceAccount
// of the executor does not exist.
type fixture struct {
	*testing.T
	namespace string
	executor  types.NamespacedName
	kube      kubernetes.Interface
	admin     dynamic.Interface
	grants    int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	name := fmt.Sprintf("case-%d", cases.Add(1))
	f := &fixture{T: t, namespace: name, executor: types.NamespacedName{Namespace: name, Name: "deployer"}}
	var err error
	if f.kube, err = kubernetes.NewForConfig(managed.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if f.admin, err = dynamic.NewForConfig(managed.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// held is a rule in a namespace, or a cluster-wide rule if the namespace is empty.
type held struct {
	namespace string
	rule      rbacv1.PolicyRule
}

func (f *fixture) userName() string {
	return serviceaccount.MakeUsername(f.executor.Namespace, f.executor.Name)
}

func (f *fixture) groups() []string {
	return append(serviceaccount.MakeGroupNames(f.executor.Namespace), "system:authenticated")
}

func (f *fixture) subject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: f.executor.Namespace, Name: f.executor.Name}
}

// allow grants the executor rules, in YAML.
func (f *fixture) allow(namespace string, rules ...string) {
	f.Helper()
	for _, text := range rules {
		f.grant(f.subject(), f.userName(), f.groups(), held{namespace, ruleOf(f, text)})
	}
}

// grant grants a rule to a user, and returns when the rule takes effect.
func (f *fixture) grant(subject rbacv1.Subject, user string, groups []string, h held) {
	f.Helper()
	f.grants++
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-held-%d", f.namespace, f.grants), Namespace: h.namespace}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
	rules, subjects := []rbacv1.PolicyRule{h.rule}, []rbacv1.Subject{subject}
	rbac, ctx := f.kube.RbacV1(), f.Context()
	var errs [2]error
	if h.namespace == "" {
		_, errs[0] = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		_, errs[1] = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		ref.Kind = "Role"
		_, errs[0] = rbac.Roles(h.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		_, errs[1] = rbac.RoleBindings(h.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	for _, err := range errs {
		if err != nil {
			f.Fatal(err)
		}
	}
	if len(h.rule.Resources) == 0 {
		return
	}
	attributes := &authorizationv1.ResourceAttributes{Namespace: h.namespace, Group: h.rule.APIGroups[0], Resource: h.rule.Resources[0], Verb: h.rule.Verbs[0]}
	if len(h.rule.ResourceNames) > 0 {
		attributes.Name = h.rule.ResourceNames[0]
	}
	await.Eventually(f, "the API server allows "+h.rule.String(), func() error {
		review, err := f.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: attributes}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("allowed = false, reason = %q", review.Status.Reason)
		}
		return err
	})
}

func ruleOf(f *fixture, text string) rbacv1.PolicyRule {
	f.Helper()
	var rule rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "NS", f.namespace)), &rule); err != nil {
		f.Fatalf("UnmarshalStrict(%s) = %v, want nil", text, err)
	}
	return rule
}

// object parses a manifest. NS is a placeholder for the namespace of the test.
func (f *fixture) object(text string) *unstructured.Unstructured {
	f.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NS", f.namespace)), &object.Object); err != nil {
		f.Fatalf("Unmarshal(%s) = %v, want nil", text, err)
	}
	return object
}

var plurals = map[string]string{
	"ConfigMap": "configmaps", "Secret": "secrets", "Namespace": "namespaces", "Role": "roles", "RoleBinding": "rolebindings",
	"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
}

func resourceOf(object *unstructured.Unstructured) schema.GroupVersionResource {
	return object.GroupVersionKind().GroupVersion().WithResource(plurals[object.GetKind()])
}

func at(client dynamic.Interface, object *unstructured.Unstructured) dynamic.ResourceInterface {
	if object.GetNamespace() == "" {
		return client.Resource(resourceOf(object))
	}
	return client.Resource(resourceOf(object)).Namespace(object.GetNamespace())
}

// make creates objects as an administrator.
func (f *fixture) make(texts ...string) {
	f.Helper()
	for _, text := range texts {
		object := f.object(text)
		if _, err := at(f.admin, object).Create(f.Context(), object, metav1.CreateOptions{}); err != nil {
			f.Fatalf("Create(%s) = %v, want nil", text, err)
		}
	}
}

// request returns the request of a ManifestWork with an executor and manifests.
func (f *fixture) request(strategy workv1.UpdateStrategyType, texts ...string) work.AdmitRequest {
	f.Helper()
	request := work.AdmitRequest{Fresh: true, Work: &workv1.ManifestWork{Spec: workv1.ManifestWorkSpec{Executor: &workv1.ManifestWorkExecutor{
		Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: f.executor.Namespace, Name: f.executor.Name},
		},
	}}}}
	request.Work.Spec.Workload.Manifests = make([]workv1.Manifest, len(texts))
	for i, text := range texts {
		object := f.object(text)
		request.Targets = append(request.Targets, work.Target{
			Ordinal: i, Resource: resourceOf(object), Namespace: object.GetNamespace(), Name: object.GetName(), Object: object,
			Strategy: strategy, Removed: strategy != workv1.UpdateStrategyTypeReadOnly,
		})
	}
	return request
}

// executors returns the Executors of an agent with a configuration. If config is nil, the agent is an
// administrator.
func (f *fixture) executors(config *rest.Config) *executor.Executors {
	f.Helper()
	if config == nil {
		config = managed.AdminConfig()
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	own, err := dynamic.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	return executor.New(executor.Config{Managed: config, Own: own, Authorization: kube.AuthorizationV1()})
}

// apply applies an object with its update strategy, as the agent does.
func apply(ctx context.Context, client dynamic.Interface, target work.Target) error {
	resource := at(client, target.Object)
	if target.Strategy == workv1.UpdateStrategyTypeServerSideApply {
		_, err := resource.Apply(ctx, target.Name, target.Object, metav1.ApplyOptions{FieldManager: "work-agent", Force: true})
		return err
	}
	live, err := resource.Get(ctx, target.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = resource.Create(ctx, target.Object, metav1.CreateOptions{})
		return err
	}
	if err != nil || target.Strategy != workv1.UpdateStrategyTypeUpdate {
		return err
	}
	result := live.DeepCopy()
	for key, value := range target.Object.Object {
		if key != "metadata" {
			result.Object[key] = value
		}
	}
	if target.Object.Object["rules"] != nil {
		delete(result.Object, "aggregationRule")
	}
	result.SetLabels(map[string]string{"applied": "again"})
	if equality.Semantic.DeepEqual(live, result) {
		return nil
	}
	_, err = resource.Update(ctx, result, metav1.UpdateOptions{})
	return err
}
