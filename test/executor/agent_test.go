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

// A work without an executor is the agent's own: it asks nobody, and acts as nobody else.
func TestExecutorNoneIsTheAgent(t *testing.T) {
	s := newScene(t, "none")
	place := s.now()
	work := s.workOf(s.configMap("object", "first"), s.deployment("object"))
	work.Spec.Executor = nil
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.set("object", "drifted")
	s.has("object", "first")

	all := s.since(place)
	s.some("create of the ConfigMap by the agent itself", all.of("configmaps", s.namespace).asItself().verbs("create").done(), all)
	s.some("repair by the agent itself", all.of("configmaps", s.namespace).asItself().verbs("update", "patch").done(), all)
	s.some("create of the Deployment by the agent itself", all.of("deployments", s.namespace).asItself().verbs("create").done(), all)
	s.no("acting as somebody else", all.impersonating())
	s.no("questions", all.verbs("create").filter(func(event *auditv1.Event) bool { return event.ObjectRef.Resource == "subjectaccessreviews" }))
}

// The seed's cases: an executor that may manage one API group manages that and no other,
// and the audit log of the managed cluster says that it was the executor who did.
func TestExecutorManagesItsGroupOnly(t *testing.T) {
	s := newScene(t, "groups")
	s.executor.Namespace = s.namespace
	if _, err := s.ManagedClient.CoreV1().ServiceAccounts(s.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: s.executor.Name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.grant("group-1", configMaps)
	place := s.now()

	first := s.workOf(s.configMap("object", "first"))
	second := s.workOf(s.deployment("object"))
	first.Name, second.Name = s.namespace+"-1", s.namespace+"-2"
	s.create(configured(first, strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "object"},
		workv1.UpdateStrategyTypeUpdate, workv1.JsonPath{Name: "value", Path: ".data.value"})), second)
	s.reports(first.Name, metav1.ConditionTrue)
	message := s.said(s.refused(second.Name), 0)
	for _, part := range []string{"deployments", s.namespace, "object", s.executor.String()} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not name %q: %s", part, message)
		}
	}
	s.set("object", "drifted")
	s.has("object", "first")
	s.change(first.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = rawManifests(s.configMap("object", "second"))
	})
	s.has("object", "second")
	s.reports(first.Name, metav1.ConditionTrue)

	all := s.since(place)
	objects := all.of("configmaps", s.namespace)
	s.some("create by the executor", objects.as(s.executor).verbs("create").done(), all)
	s.some("read by the executor", objects.as(s.executor).verbs("get").done(), all)
	if written := objects.as(s.executor).verbs("update", "patch").done(); len(written) != 2 {
		t.Errorf("the executor was to repair the object and to change it once each:\n\t%s", written)
	}
	s.no("requests for the object by the agent itself", objects.asItself())
	s.no("requests for the other group", all.of("deployments", s.namespace))
	s.asked(all)

	// What the agent does itself is to remove what is left.
	place = s.now()
	s.gone(first.Name)
	s.none("object")
	objects = s.since(place).of("configmaps", s.namespace)
	s.some("removal by the agent", objects.asItself().verbs("delete").done(), objects)
	s.no("requests of the executor", objects.impersonating())
}

// asked checks the SubjectAccessReviews of the scene's executor against the seed.
func (s *scene) asked(all requests) {
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
			s.t.Errorf("asked with the groups %v, not %v", spec.Groups, want.UnsortedList())
		}
		about := spec.ResourceAttributes
		if about == nil || about.Version != "v1" || about.Namespace != s.namespace {
			s.t.Errorf("asked about %+v", about)
			continue
		}
		// The API server does not know a name when it creates.
		if about.Verb != "create" && about.Name != "object" || about.Verb == "create" && about.Name != "" {
			s.t.Errorf("asked to %s the name %q", about.Verb, about.Name)
		}
		if asked[about.Resource] == nil {
			asked[about.Resource] = sets.New[string]()
		}
		asked[about.Resource].Insert(about.Verb)
	}
	for _, resource := range []string{"configmaps", "deployments"} {
		if want := sets.New(lifecycle...); !asked[resource].Equal(want) {
			s.t.Errorf("asked about %s: %v, not %v", resource, sets.List(asked[resource]), sets.List(want))
		}
	}
}

// One manifest that is denied keeps all of them from being written (3.1 of the seed), and
// each condition has the rule that is missing. With exactly that, the work is applied.
func TestExecutorAppliesAllOrNothing(t *testing.T) {
	inBothModes(t, func(t *testing.T, mode string) {
		s := newScene(t, "all-or-nothing-"+mode)
		s.grant("held", configMaps)
		place := s.now()
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
			t.Errorf("a work of which nothing was applied has the finalizers %v", refused.Finalizers)
		}
		s.untouched(place)
		for i := range 8 {
			s.none(fmt.Sprint("object-", i))
			if message := s.said(refused, i); !strings.Contains(message, "2 of 10") {
				t.Errorf("manifest %d does not say that others are to blame: %s", i, message)
			}
		}
		var missing []rbacv1.PolicyRule
		for ordinal, resource := range map[int]string{8: "deployments", 9: "secrets"} {
			message := s.said(refused, ordinal)
			if !strings.Contains(message, s.namespace) || !strings.Contains(message, s.executor.String()) {
				t.Errorf("the condition names neither namespace nor executor: %s", message)
			}
			rules := rulesIn(s.t, message)
			verbs := sets.New[string]()
			for _, rule := range rules {
				verbs.Insert(rule.Verbs...)
				if !slices.Equal(rule.Resources, []string{resource}) {
					t.Errorf("the rule of manifest %d is for %v", ordinal, rule.Resources)
				}
			}
			if !verbs.Equal(sets.New(lifecycle...)) {
				t.Errorf("the rules of manifest %d have the verbs %v", ordinal, sets.List(verbs))
			}
			missing = append(missing, rules...)
		}

		granted := time.Now()
		s.grant("missing", missing...)
		s.reports(work.Name, metav1.ConditionTrue)
		s.took("a grant had its effect", granted)
		for i := range 8 {
			s.is(fmt.Sprint("object-", i), "first")
		}
	})
}

// What was applied stays when its executor loses its permissions, and is left alone
// until the executor has them again.
func TestExecutorRevokedLeavesObjectsAlone(t *testing.T) {
	inBothModes(t, func(t *testing.T, mode string) {
		s := newScene(t, "revoked-"+mode)
		s.grant("held", configMaps)
		work := s.workOf(s.configMap("object", "first"), s.configMap("other", "first"))
		s.create(work)
		s.reports(work.Name, metav1.ConditionTrue)

		// Whose objects are repaired all the time, to know when this one's would have been.
		control := newScene(t, "revoked-control-"+mode)
		own := control.workOf(control.configMap("object", "first"))
		own.Spec.Executor = nil
		control.create(own)
		control.has("object", "first")

		revoked := time.Now()
		s.unbind("held")
		s.refused(work.Name)
		s.took("a revocation had its effect", revoked)

		place := s.now()
		s.set("object", "drifted")
		control.set("object", "drifted")
		control.has("object", "first")
		s.untouched(place)
		s.is("object", "drifted")
		s.is("other", "first")

		granted := time.Now()
		s.bind(s.namespace, "held", accountSubject(s.executor))
		s.has("object", "first")
		s.took("a grant had its effect", granted)
		s.reports(work.Name, metav1.ConditionTrue)
	})
}

// An agent that was away when a permission was taken repairs nothing when it comes back.
func TestExecutorRevokedWhileTheAgentWasAway(t *testing.T) {
	inBothModes(t, func(t *testing.T, mode string) {
		s := newScene(t, "away-"+mode)
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
		place := s.now()
		if err := agent.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.refused(work.Name)
		s.is("object", "drifted")
		s.untouched(place)
		s.bind(s.namespace, "held", accountSubject(s.executor))
		s.has("object", "first")
	})
}

// The agent goes on judging after the managed cluster was away, and sees what was
// changed there without it.
func TestExecutorAfterAnOutageOfTheCluster(t *testing.T) {
	s := newScene(t, "outage")
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	if err := s.Members[0].APIServer.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the permission is taken", func(ctx context.Context) error {
		return s.ManagedClient.RbacV1().RoleBindings(s.namespace).Delete(ctx, "held", metav1.DeleteOptions{})
	})
	s.refused(work.Name)
	s.set("object", "drifted")
	s.bind(s.namespace, "held", accountSubject(s.executor))
	s.has("object", "first")
}

// An executor may bring namespaces and kinds together with objects in and of them.
func TestExecutorBringsNamespacesAndKinds(t *testing.T) {
	s := newScene(t, "brings")
	brought := s.namespace + "-brought"
	crd := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.executor.example.com"},"spec":{"group":"executor.example.com","scope":"Namespaced",
		"names":{"kind":"Thing","listKind":"ThingList","plural":"things","singular":"thing"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	thing := fmt.Sprintf(`{"apiVersion":"executor.example.com/v1","kind":"Thing","metadata":{"name":"thing","namespace":%q}}`, brought)
	inside := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"inside","namespace":%q}}`, brought)
	namespace := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, brought)
	s.grantEverywhere(s.namespace, configMaps, ruleFor("", "namespaces", lifecycle...),
		ruleFor("apiextensions.k8s.io", "customresourcedefinitions", lifecycle...))
	place := s.now()
	work := s.workOf(thing, inside, namespace, crd)
	s.create(work)
	// The kind can be judged only once there is such a kind, which the work brings.
	framework.Eventually(t, "the new kind is refused", func(ctx context.Context) error {
		work, err := s.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, work.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, manifest := range work.Status.ResourceStatus.Manifests {
			if applied := meta.FindStatusCondition(manifest.Conditions, workv1.WorkApplied); manifest.ResourceMeta.Ordinal == 0 && applied != nil && strings.Contains(applied.Message, "not allowed to apply the resource executor.example.com things") {
				return nil
			}
		}
		return fmt.Errorf("it reports %v", work.Status.ResourceStatus.Manifests)
	})
	s.no("requests for things", s.since(place).of("things", brought))
	s.grantEverywhere(s.namespace+"-things", ruleFor("executor.example.com", "things", lifecycle...))
	s.reports(work.Name, metav1.ConditionTrue)
	all := s.since(place)
	s.some("create of the thing by the executor", all.of("things", brought).as(s.executor).verbs("create").done(), all)
	s.some("create in the namespace by the executor", all.of("configmaps", brought).as(s.executor).verbs("create").done(), all)
	s.no("requests in the namespace by the agent itself", all.filter(func(event *auditv1.Event) bool {
		return event.ObjectRef.Namespace == brought && event.ObjectRef.APIGroup != "authorization.k8s.io"
	}).asItself())
	s.gone(work.Name)
}

// The gap that the seed documents: to delete is judged when objects are applied, so
// what was applied is removed with its work whatever the executor may do by then.
func TestExecutorRevokedDeleteStillRemoves(t *testing.T) {
	s := newScene(t, "removal")
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.setRules("held", ruleFor("", "configmaps", "get", "create", "update", "patch"))
	message := s.said(s.refused(work.Name), 0)
	if rules := rulesIn(s.t, message); len(rules) != 1 || !slices.Equal(rules[0].Verbs, []string{"delete"}) {
		t.Errorf("not only delete is missing: %s", message)
	}

	place := s.now()
	s.gone(work.Name)
	s.none("object")
	all := s.since(place)
	s.some("removal by the agent", all.of("configmaps", s.namespace).asItself().verbs("delete").done(), all)
	s.no("requests of the executor", all.impersonating())
}

// What its work orphans, an executor need not be allowed to delete.
func TestExecutorOfOrphansNeedsNoDelete(t *testing.T) {
	s := newScene(t, "orphans")
	s.grant("held", ruleFor("", "configmaps", "get", "create", "update", "patch"))
	work := s.workOf(s.configMap("object", "first"))
	work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.gone(work.Name)
	s.is("object", "first")
}

// A ServiceAccount need not exist to be an executor, and the agent does not make it.
func TestExecutorThatDoesNotExist(t *testing.T) {
	s := newScene(t, "nobody")
	s.executor.Namespace = "no-such-namespace"
	s.grant("held", configMaps)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)
	s.is("object", "first")
	if _, err := s.ManagedClient.CoreV1().Namespaces().Get(t.Context(), s.executor.Namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its namespace exists, or: %v", err)
	}
	if _, err := s.ManagedClient.CoreV1().ServiceAccounts(s.executor.Namespace).Get(t.Context(), s.executor.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it exists, or: %v", err)
	}
}

// From the moment that a work names another executor, or none, it acts as that.
func TestExecutorIsChanged(t *testing.T) {
	s := newScene(t, "switch")
	a, b := s.executor, types.NamespacedName{Namespace: executorHome, Name: "switched"}
	s.grant("a", configMaps)
	s.grantIn(s.namespace, "b", []rbacv1.PolicyRule{configMaps}, accountSubject(b))
	work := s.workOf(s.configMap("object", "a"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)

	place := s.now()
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = executorOf(b)
		spec.Workload.Manifests = rawManifests(s.configMap("object", "b"))
	})
	s.has("object", "b")
	s.reports(work.Name, metav1.ConditionTrue)
	all := s.since(place)
	s.some("write by the new executor", all.of("configmaps", s.namespace).as(b).verbs("update", "patch").done(), all)
	s.no("requests of the former", all.as(a))

	// One that may do nothing changes nothing.
	place = s.now()
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = executorOf(types.NamespacedName{Namespace: executorHome, Name: "powerless"})
		spec.Workload.Manifests = rawManifests(s.configMap("object", "powerless"))
	})
	s.refused(work.Name)
	s.untouched(place)
	s.is("object", "b")

	place = s.now()
	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = nil
		spec.Workload.Manifests = rawManifests(s.configMap("object", "agent"))
	})
	s.has("object", "agent")
	s.reports(work.Name, metav1.ConditionTrue)
	all = s.since(place)
	s.some("write by the agent itself", all.of("configmaps", s.namespace).asItself().verbs("update", "patch").done(), all)
	s.no("acting as somebody else", all.impersonating())
}

// With --work-executor, ClusterPermissions are delivered by that executor: they say what
// it lacks, and are applied as soon as it has that.
func TestExecutorDeliversClusterPermissions(t *testing.T) {
	s := newScene(t, "deliveries")
	s.executor.Name = permissionExecutor
	place := s.now()
	cp := framework.CreatePermission(t, s.OCM, framework.Permission("executor-delivered"))
	framework.Eventually(t, "the ClusterPermission says that it is not applied", func(ctx context.Context) error {
		cp, err := s.GetPermission(ctx, cp.Name)
		if err != nil {
			return err
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse)
	})
	delivered := framework.Must(s.GetWork(t.Context(), cp))(t)
	if got := delivered.Spec.Executor; got == nil || got.Subject.ServiceAccount.Name != permissionExecutor {
		t.Fatalf("its work has the executor %v", got)
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
	s.no("requests", rbac(s.since(place)))

	granted := time.Now()
	s.grantEverywhere("executor-delivers", missing...)
	s.Present(t, framework.ObjectsOf(cp.Name)...)
	s.took("a grant had its effect", granted)
	s.Applied(t, cp.Name)
	all := rbac(s.since(place))
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
