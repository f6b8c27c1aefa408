package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestNilExecutorIsTheAgent checks that the agent applies a ManifestWork without an executor with
// its own permissions, without impersonation and without SubjectAccessReviews.
func TestNilExecutorIsTheAgent(t *testing.T) {
	s := newFixture(t, "none")
	position := s.now()
	work := s.workOf(s.configMap("object", "first"), s.deployment("object"))
	work.Spec.Executor = nil
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.set("object", "drifted")
	s.has("object", "first")

	all := s.since(position)
	s.some("create of the ConfigMap by the agent itself", all.of("configmaps", s.namespace).asItself().verbs("create").done(), all)
	s.some("repair by the agent itself", all.of("configmaps", s.namespace).asItself().verbs("update", "patch").done(), all)
	s.some("create of the Deployment by the agent itself", all.of("deployments", s.namespace).asItself().verbs("create").done(), all)
	s.no("impersonated requests", all.impersonating())
	s.no("SubjectAccessReviews", all.verbs("create").filter(func(event *auditv1.Event) bool { return event.ObjectRef.Resource == "subjectaccessreviews" }))
}

// TestExecutorManagesItsGroupOnly checks the cases of the OCM enhancement proposal. If an executor
// has permissions on one API group, the agent applies objects of that group and of no other. The
// audit log of the managed cluster contains the executor as the impersonated user.
func TestExecutorManagesItsGroupOnly(t *testing.T) {
	s := newFixture(t, "groups")
	s.executor.Namespace = s.namespace
	if _, err := s.ManagedClient.CoreV1().ServiceAccounts(s.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: s.executor.Name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.grant("group-1", configMaps)
	position := s.now()

	first := s.workOf(s.configMap("object", "first"))
	second := s.workOf(s.deployment("object"))
	first.Name, second.Name = s.namespace+"-1", s.namespace+"-2"
	s.create(configured(first, strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "object"},
		workv1.UpdateStrategyTypeUpdate, workv1.JsonPath{Name: "value", Path: ".data.value"})), second)
	s.reports(first.Name, metav1.ConditionTrue)
	message := s.said(s.refused(second.Name), 0)
	for _, part := range []string{"deployments", s.namespace, "object", s.executor.String()} {
		if !strings.Contains(message, part) {
			t.Errorf("message of Applied = %q, want %q in it", message, part)
		}
	}
	s.set("object", "drifted")
	s.has("object", "first")
	s.change(first.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = rawManifests(s.configMap("object", "second"))
	})
	s.has("object", "second")
	s.reports(first.Name, metav1.ConditionTrue)

	all := s.since(position)
	objects := all.of("configmaps", s.namespace)
	s.some("create by the executor", objects.as(s.executor).verbs("create").done(), all)
	s.some("get by the executor", objects.as(s.executor).verbs("get").done(), all)
	if written := objects.as(s.executor).verbs("update", "patch").done(); len(written) != 2 {
		t.Errorf("writes by the executor = %d, want one repair and one change:\n\t%s", len(written), written)
	}
	s.no("requests for the object by the agent itself", objects.asItself())
	s.no("requests for Deployments", all.of("deployments", s.namespace))
	s.asked(all)

	// The agent deletes the objects of a deleted ManifestWork as itself.
	position = s.now()
	s.gone(first.Name)
	s.none("object")
	objects = s.since(position).of("configmaps", s.namespace)
	s.some("removal by the agent", objects.asItself().verbs("delete").done(), objects)
	s.no("impersonated requests", objects.impersonating())
}

// asked checks that the SubjectAccessReviews for the fixture's executor are those of the OCM
// enhancement proposal.
func (s *fixture) asked(all requests) {
	s.t.Helper()
	asked := map[string]sets.Set[string]{}
	for _, event := range all.verbs("create").asItself() {
		if event.ObjectRef.Resource != "subjectaccessreviews" {
			continue
		}
		var review authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(event.RequestObject.Raw, &review); err != nil {
			s.t.Fatal(err)
		}
		spec := review.Spec
		if spec.User != executorName(s.executor) {
			continue
		}
		if want := sets.New("system:serviceaccounts", "system:authenticated", "system:serviceaccounts:"+s.executor.Namespace); !sets.New(spec.Groups...).Equal(want) {
			s.t.Errorf("groups in the SubjectAccessReview = %v, want %v", spec.Groups, want.UnsortedList())
		}
		about := spec.ResourceAttributes
		if about == nil || about.Version != "v1" || about.Namespace != s.namespace {
			s.t.Errorf("resourceAttributes in the SubjectAccessReview = %+v, want version v1 and namespace %s", about, s.namespace)
			continue
		}
		// A POST contains no name in its URL, so the API server authorizes create without a name. With the name, the review only
		// explains a denial.
		if about.Verb != "create" && about.Name != "object" || about.Verb == "create" && about.Name != "" && about.Resource != "deployments" {
			s.t.Errorf("name in the SubjectAccessReview for %s of %s = %q, want no name for create and object for other verbs", about.Verb, about.Resource, about.Name)
		}
		if asked[about.Resource] == nil {
			asked[about.Resource] = sets.New[string]()
		}
		asked[about.Resource].Insert(about.Verb)
	}
	for _, resource := range []string{"configmaps", "deployments"} {
		if want := sets.New(lifecycle...); !asked[resource].Equal(want) {
			s.t.Errorf("verbs in the SubjectAccessReviews for %s = %v, want %v", resource, sets.List(asked[resource]), sets.List(want))
		}
	}
}

// TestExecutorAppliesAllOrNothing checks that the agent writes no manifest if the executor lacks
// permissions for one of them. The condition of each denied manifest contains the missing rules. If
// exactly these rules are granted, the agent applies the ManifestWork.
func TestExecutorAppliesAllOrNothing(t *testing.T) {
	s := newFixture(t, "all-or-nothing")
	s.grant("held", configMaps)
	position := s.now()
	var contents []string
	for i := range 8 {
		contents = append(contents, s.configMap(fmt.Sprint("object-", i), "first"))
	}
	contents = append(contents, s.deployment("denied"),
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"denied","namespace":%q}}`, s.namespace))
	work := s.workOf(contents...)
	s.create(work)

	refused := s.refused(work.Name)
	if len(refused.Finalizers) > 0 {
		t.Errorf("finalizers of a ManifestWork without applied manifests = %v, want none", refused.Finalizers)
	}
	s.untouched(position)
	for i := range 8 {
		s.none(fmt.Sprint("object-", i))
		if message := s.said(refused, i); !strings.Contains(message, "2 of 10") {
			t.Errorf("message of manifest %d = %q, want \"2 of 10\" in it", i, message)
		}
	}
	var missing []rbacv1.PolicyRule
	for ordinal, resource := range map[int]string{8: "deployments", 9: "secrets"} {
		message := s.said(refused, ordinal)
		if !strings.Contains(message, s.namespace) || !strings.Contains(message, s.executor.String()) {
			t.Errorf("message of manifest %d = %q, want namespace %s and executor %s in it", ordinal, message, s.namespace, s.executor)
		}
		rules := rulesIn(s.t, message)
		verbs := sets.New[string]()
		for _, rule := range rules {
			verbs.Insert(rule.Verbs...)
			if !slices.Equal(rule.Resources, []string{resource}) {
				t.Errorf("resources in the rule of manifest %d = %v, want %s", ordinal, rule.Resources, resource)
			}
		}
		if !verbs.Equal(sets.New(lifecycle...)) {
			t.Errorf("verbs in the rules of manifest %d = %v, want %v", ordinal, sets.List(verbs), lifecycle)
		}
		missing = append(missing, rules...)
	}

	granted := time.Now()
	s.grant("missing", missing...)
	s.reports(work.Name, metav1.ConditionTrue)
	s.took("the grant took effect", granted)
	for i := range 8 {
		s.is(fmt.Sprint("object-", i), "first")
	}
}

// TestExecutorRevokedLeavesObjectsAlone checks that applied objects stay after the executor loses
// its permissions. The agent does not change them until the executor has the permissions again.
func TestExecutorRevokedLeavesObjectsAlone(t *testing.T) {
	s := newFixture(t, "revoked")
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"), s.configMap("other", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)

	// The repair of the control object proves that the agent had time to repair the others.
	control := newFixture(t, "revoked-control")
	own := control.workOf(control.configMap("object", "first"))
	own.Spec.Executor = nil
	control.create(own)
	control.has("object", "first")

	revoked := time.Now()
	s.unbind("held")
	s.refused(work.Name)
	s.took("the revocation took effect", revoked)
	s.HasEvent(t, work.Namespace, "ManifestWork", work.Name, corev1.EventTypeWarning, workv1.ReasonAppliedManifestWorkFailed, s.executor.Name)

	position := s.now()
	s.set("object", "drifted")
	control.set("object", "drifted")
	control.has("object", "first")
	s.untouched(position)
	s.is("object", "drifted")
	s.is("other", "first")

	granted := time.Now()
	s.bind(s.namespace, "held", accountSubject(s.executor))
	s.has("object", "first")
	s.took("the grant took effect", granted)
	s.reports(work.Name, metav1.ConditionTrue)
}

// TestExecutorRevokedWhileTheAgentIsDown checks that the agent repairs nothing after its start if a
// permission was revoked while it was down.
func TestExecutorRevokedWhileTheAgentIsDown(t *testing.T) {
	s := newFixture(t, "away")
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)

	agent := s.Members[0].Agent
	if err := agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.unbind("held")
	s.set("object", "drifted")
	position := s.now()
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.refused(work.Name)
	s.is("object", "drifted")
	s.untouched(position)
	s.bind(s.namespace, "held", accountSubject(s.executor))
	s.has("object", "first")
}

// TestExecutorAfterAnOutageOfTheCluster checks that the agent continues to check permissions after
// an outage of the managed cluster's API server, and notices changes of RBAC.
func TestExecutorAfterAnOutageOfTheCluster(t *testing.T) {
	s := newFixture(t, "outage")
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	if err := s.Members[0].APIServer.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "RoleBinding held is deleted", func(ctx context.Context) error {
		return s.ManagedClient.RbacV1().RoleBindings(s.namespace).Delete(ctx, "held", metav1.DeleteOptions{})
	})
	s.refused(work.Name)
	s.set("object", "drifted")
	s.bind(s.namespace, "held", accountSubject(s.executor))
	s.has("object", "first")
}

// TestExecutorCreatesNamespacesAndKinds checks that a ManifestWork can contain a Namespace and a
// CustomResourceDefinition together with objects in the namespace and of the new kind.
func TestExecutorCreatesNamespacesAndKinds(t *testing.T) {
	s := newFixture(t, "brings")
	brought := s.namespace + "-brought"
	crd := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.executor.example.com"},"spec":{"group":"executor.example.com","scope":"Namespaced",
		"names":{"kind":"Thing","listKind":"ThingList","plural":"things","singular":"thing"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	thing := fmt.Sprintf(`{"apiVersion":"executor.example.com/v1","kind":"Thing","metadata":{"name":"thing","namespace":%q}}`, brought)
	inside := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"inside","namespace":%q}}`, brought)
	namespace := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, brought)
	s.grantEverywhere(s.namespace, configMaps, ruleFor("", "namespaces", lifecycle...),
		ruleFor("apiextensions.k8s.io", "customresourcedefinitions", lifecycle...))
	position := s.now()
	work := s.workOf(thing, inside, namespace, crd)
	s.create(work)
	// The agent can check permissions for the new kind only after the ManifestWork has created it.
	framework.Eventually(t, "the manifest of the new kind is denied", func(ctx context.Context) error {
		work, err := s.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, work.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, manifest := range work.Status.ResourceStatus.Manifests {
			if applied := meta.FindStatusCondition(manifest.Conditions, workv1.WorkApplied); manifest.ResourceMeta.Ordinal == 0 && applied != nil && strings.Contains(applied.Message, "not allowed to apply the resource executor.example.com things") {
				return nil
			}
		}
		return fmt.Errorf("status of the manifests = %v", work.Status.ResourceStatus.Manifests)
	})
	s.no("requests for things", s.since(position).of("things", brought))
	s.grantEverywhere(s.namespace+"-things", ruleFor("executor.example.com", "things", lifecycle...))
	s.reports(work.Name, metav1.ConditionTrue)
	all := s.since(position)
	s.some("create of the thing by the executor", all.of("things", brought).as(s.executor).verbs("create").done(), all)
	s.some("create in the namespace by the executor", all.of("configmaps", brought).as(s.executor).verbs("create").done(), all)
	s.no("requests in the namespace by the agent itself", all.filter(func(event *auditv1.Event) bool {
		return event.ObjectRef.Namespace == brought && event.ObjectRef.APIGroup != "authorization.k8s.io"
	}).asItself())
	s.gone(work.Name)
}

// TestExecutorRevokedDeleteStillRemoves checks a limitation that the OCM enhancement proposal
// documents. The agent checks delete when it applies objects. It therefore deletes applied objects
// with their ManifestWork, even if the executor has lost delete by then.
func TestExecutorRevokedDeleteStillRemoves(t *testing.T) {
	s := newFixture(t, "removal")
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.setRules("held", ruleFor("", "configmaps", "get", "create", "update", "patch"))
	message := s.said(s.refused(work.Name), 0)
	if rules := rulesIn(s.t, message); len(rules) != 1 || !slices.Equal(rules[0].Verbs, []string{"delete"}) {
		t.Errorf("rules in the message = %v, want only delete: %s", rules, message)
	}

	position := s.now()
	s.gone(work.Name)
	s.none("object")
	all := s.since(position)
	s.some("removal by the agent", all.of("configmaps", s.namespace).asItself().verbs("delete").done(), all)
	s.no("impersonated requests", all.impersonating())
}

// TestExecutorOfOrphansNeedsNoDelete checks that an executor needs no permission to delete objects
// that the ManifestWork orphans.
func TestExecutorOfOrphansNeedsNoDelete(t *testing.T) {
	s := newFixture(t, "orphans")
	s.grant("held", ruleFor("", "configmaps", "get", "create", "update", "patch"))
	work := s.workOf(s.configMap("object", "first"))
	work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.gone(work.Name)
	s.is("object", "first")
}

// TestExecutorThatDoesNotExist checks that the ServiceAccount of an executor need not exist, and
// that the agent does not create it.
func TestExecutorThatDoesNotExist(t *testing.T) {
	s := newFixture(t, "nobody")
	s.executor.Namespace = "no-such-namespace"
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.is("object", "first")
	if _, err := s.ManagedClient.CoreV1().Namespaces().Get(t.Context(), s.executor.Namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get Namespace %s = %v, want NotFound", s.executor.Namespace, err)
	}
	if _, err := s.ManagedClient.CoreV1().ServiceAccounts(s.executor.Namespace).Get(t.Context(), s.executor.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get ServiceAccount %s = %v, want NotFound", s.executor, err)
	}
}

// TestExecutorIsChanged checks that the agent uses the new executor, or its own permissions, as
// soon as a ManifestWork names another executor or none.
func TestExecutorIsChanged(t *testing.T) {
	s := newFixture(t, "switch")
	a, b := s.executor, types.NamespacedName{Namespace: executorHome, Name: "switched"}
	s.grant("a", configMaps)
	s.grantIn(s.namespace, "b", []rbacv1.PolicyRule{configMaps}, accountSubject(b))
	work := s.workOf(s.configMap("object", "a"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)

	position := s.now()
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = executorOf(b)
		spec.Workload.Manifests = rawManifests(s.configMap("object", "b"))
	})
	s.has("object", "b")
	s.reports(work.Name, metav1.ConditionTrue)
	all := s.since(position)
	s.some("write by the new executor", all.of("configmaps", s.namespace).as(b).verbs("update", "patch").done(), all)
	s.no("requests as the previous executor", all.as(a))

	// An executor without permissions changes nothing.
	position = s.now()
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = executorOf(types.NamespacedName{Namespace: executorHome, Name: "powerless"})
		spec.Workload.Manifests = rawManifests(s.configMap("object", "powerless"))
	})
	s.refused(work.Name)
	s.untouched(position)
	s.is("object", "b")

	position = s.now()
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = nil
		spec.Workload.Manifests = rawManifests(s.configMap("object", "agent"))
	})
	s.has("object", "agent")
	s.reports(work.Name, metav1.ConditionTrue)
	all = s.since(position)
	s.some("write by the agent itself", all.of("configmaps", s.namespace).asItself().verbs("update", "patch").done(), all)
	s.no("impersonated requests", all.impersonating())
}

// TestExecutorDeliversClusterPermissions checks --work-executor: the agent applies
// ClusterPermissions as that executor. Their ManifestWorks report the missing rules, and are
// applied as soon as the executor has them.
func TestExecutorDeliversClusterPermissions(t *testing.T) {
	s := newFixture(t, "deliveries")
	s.executor.Name = permissionExecutor
	position := s.now()
	cp := framework.CreatePermission(t, s.OCM, framework.Permission("executor-delivered"))
	framework.Eventually(t, "ClusterPermission "+cp.Name+" has condition AppliedRBACManifestWork=False", func(ctx context.Context) error {
		cp, err := s.GetPermission(ctx, cp.Name)
		if err != nil {
			return err
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse)
	})
	delivered := framework.Must(s.GetWork(t.Context(), cp))(t)
	if got := delivered.Spec.Executor; got == nil || got.Subject.ServiceAccount.Name != permissionExecutor {
		t.Fatalf("executor of ManifestWork %s = %v, want %s", delivered.Name, got, permissionExecutor)
	}
	refused := s.refused(delivered.Name)
	var missing []rbacv1.PolicyRule
	for i := range refused.Status.ResourceStatus.Manifests {
		missing = append(missing, rulesIn(s.t, s.said(refused, i))...)
	}
	rbac := func(r requests) requests {
		return r.filter(func(event *auditv1.Event) bool {
			return event.ObjectRef.APIGroup == rbacv1.GroupName && event.ObjectRef.Name == cp.Name
		})
	}
	s.no("requests for the RBAC objects", rbac(s.since(position)))

	granted := time.Now()
	s.grantEverywhere("executor-delivers", missing...)
	s.Present(t, framework.ObjectsOf(cp.Name)...)
	s.took("the grant took effect", granted)
	s.Applied(t, cp.Name)
	all := rbac(s.since(position))
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		created := all.as(s.executor).verbs("create").done().filter(func(event *auditv1.Event) bool { return event.ObjectRef.Resource == resource })
		s.some("create of "+resource+" by the executor", created, all)
	}
	s.no("requests of the agent itself", all.asItself())

	if err := s.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Absent(t, framework.ObjectsOf(cp.Name)...)
	s.NoWorks(t, cp.Name)
}
