package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// Each of the tests W1 to W7 checks one known defect of other implementations of executors.

// TestExecutorFeedbackReadsNothingForbidden (W1) checks that feedback and condition rules require
// permission of the executor to read the object.
func TestExecutorFeedbackReadsNothingForbidden(t *testing.T) {
	s := newFixture(t, "w1")
	const password = "correct-horse-battery-staple"
	secrets := s.ManagedClient.CoreV1().Secrets("kube-system")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, StringData: map[string]string{"password": password}}
	created := framework.Must(secrets.Create(t.Context(), secret, metav1.CreateOptions{}))(t)
	s.atEnd(func(ctx context.Context) error { return secrets.Delete(ctx, s.namespace, metav1.DeleteOptions{}) })
	encoded := strings.Trim(string(framework.Must(json.Marshal(created.Data["password"]))(t)), `"`)

	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":"kube-system"}}`, s.namespace)
	position := s.now()
	var works []*workv1.ManifestWork
	for name, update := range map[string]workv1.UpdateStrategyType{
		"update": workv1.UpdateStrategyTypeUpdate, "readonly": workv1.UpdateStrategyTypeReadOnly, "apply": workv1.UpdateStrategyTypeServerSideApply,
	} {
		work := s.workOf(manifest)
		work.Name += "-" + name
		option := strategy(workv1.ResourceIdentifier{Resource: "secrets", Namespace: new("kube-system"), Name: s.namespace}, update,
			workv1.JsonPath{Name: "password", Path: ".data.password"})
		// The result of a condition rule would reveal the content of the object bit by bit.
		option.ConditionRules = []workv1.ConditionRule{{
			Condition: "Guessed", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{fmt.Sprintf("object.data.password == %q", encoded)},
			MessageExpression: new("object.data.password"),
		}}
		works = append(works, configured(work, option))
	}
	s.create(works...)
	for _, work := range works {
		refused := s.refused(work.Name)
		for _, condition := range refused.Status.ResourceStatus.Manifests[0].Conditions {
			if condition.Type == "Guessed" {
				t.Errorf("condition of ManifestWork %s = %v, want no condition Guessed", work.Name, condition)
			}
		}
		for _, secret := range []string{password, encoded} {
			if strings.Contains(string(framework.Must(json.Marshal(refused.Status))(t)), secret) {
				t.Errorf("status of ManifestWork %s contains the value of the Secret, want it absent", work.Name)
			}
		}
	}
	s.no("requests for Secrets", s.since(position).filter(func(event *auditv1.Event) bool { return event.ObjectRef.Resource == "secrets" }))
	log := string(framework.Must(os.ReadFile(s.Members[0].Agent.LogFile))(t))
	for _, secret := range []string{password, encoded} {
		if strings.Contains(log, secret) {
			t.Error("log of the agent contains the value of the Secret, want it absent")
		}
	}

	// If the executor is allowed to read the Secret, the value is reported until a revocation.
	readOnly := s.namespace + "-readonly"
	rules := rulesIn(s.t, s.said(s.reports(readOnly, metav1.ConditionFalse), 0))
	position = s.now()
	s.grantIn("kube-system", s.namespace, rules, accountSubject(s.executor))
	reported := s.reports(readOnly, metav1.ConditionTrue).Status.ResourceStatus.Manifests[0]
	if values := reported.StatusFeedbacks.Values; len(values) != 1 || values[0].Value.String == nil || *values[0].Value.String != encoded {
		t.Errorf("feedback of ManifestWork %s = %v, want the value of the Secret", readOnly, values)
	}
	if !meta.IsStatusConditionTrue(reported.Conditions, "Guessed") {
		t.Errorf("conditions of the manifest = %v, want Guessed=True", reported.Conditions)
	}
	all := s.since(position).filter(func(event *auditv1.Event) bool { return event.ObjectRef.Resource == "secrets" })
	s.some("get of the Secret by the executor", all.as(s.executor).named(s.namespace).verbs("get").done(), all)
	s.no("requests of the agent itself that return more than metadata", all.asItself().filter(func(event *auditv1.Event) bool {
		return !slices.Contains([]string{"list", "watch"}, event.Verb) || event.ResponseObject != nil && strings.Contains(string(event.ResponseObject.Raw), encoded)
	}))
	if err := s.ManagedClient.RbacV1().RoleBindings("kube-system").Delete(t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.refused(readOnly)
}

// TestExecutorRevocationIsNoticed (W2) checks that the next write is denied after each kind of
// revocation.
func TestExecutorRevocationIsNoticed(t *testing.T) {
	for _, test := range []struct {
		name   string
		grant  func(*fixture)
		revoke func(*fixture)
		regain func(*fixture)
	}{
		{
			"subjects",
			func(s *fixture) { s.grant("held", configMaps) },
			func(s *fixture) { s.setSubjects("held", *framework.UserSubject("somebody-else")) },
			func(s *fixture) { s.setSubjects("held", accountSubject(s.executor)) },
		},
		{
			"role",
			func(s *fixture) { s.grant("held", configMaps) },
			func(s *fixture) { s.setRules("held", ruleFor("", "configmaps", "get")) },
			func(s *fixture) { s.setRules("held", configMaps) },
		},
		{
			"group",
			func(s *fixture) {
				s.grantIn(s.namespace, "held", []rbacv1.PolicyRule{configMaps}, groupSubject("system:serviceaccounts:"+executorHome))
			},
			func(s *fixture) { s.setSubjects("held", groupSubject("system:serviceaccounts:elsewhere")) },
			func(s *fixture) { s.setSubjects("held", groupSubject("system:serviceaccounts:"+executorHome)) },
		},
		{
			"user",
			func(s *fixture) {
				s.grantIn(s.namespace, "held", []rbacv1.PolicyRule{configMaps}, *framework.UserSubject("system:serviceaccount:" + s.executor.Namespace + ":" + s.executor.Name))
			},
			func(s *fixture) { s.setSubjects("held") },
			func(s *fixture) { s.setSubjects("held", groupSubject("system:authenticated")) },
		},
		{
			"binding",
			func(s *fixture) { s.grant("held", configMaps) },
			func(s *fixture) { s.unbind("held") },
			func(s *fixture) { s.bind(s.namespace, "held", accountSubject(s.executor)) },
		},
		{
			"role-gone",
			func(s *fixture) { s.grant("held", configMaps) },
			func(s *fixture) {
				if err := s.ManagedClient.RbacV1().Roles(s.namespace).Delete(s.t.Context(), "held", metav1.DeleteOptions{}); err != nil {
					s.t.Fatal(err)
				}
			},
			func(s *fixture) { s.grant("held-again", configMaps) },
		},
		{
			"clusterrole",
			func(s *fixture) { s.grantEverywhere(s.namespace, configMaps) },
			func(s *fixture) { s.setClusterRules(ruleFor("", "configmaps", "get", "list")) },
			func(s *fixture) { s.setClusterRules(ruleFor("*", "*", "*")) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newFixture(t, "w2-"+test.name+"")
			test.grant(s)
			work := s.workOf(s.configMap("object", "first"))
			s.create(work)
			s.reports(work.Name, metav1.ConditionTrue)

			test.revoke(s)
			// The API server authorizes every impersonated write, even if the agent has not noticed the
			// revocation.
			s.denied(authorizationv1.ResourceAttributes{Verb: "update", Version: "v1", Resource: "configmaps", Namespace: s.namespace, Name: "object"})
			position := s.now()
			s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
				spec.Workload.Manifests = rawManifests(s.configMap("object", "second"))
			})
			s.refused(work.Name)
			s.is("object", "first")
			s.no("successful writes of ConfigMaps", s.since(position).of("configmaps", s.namespace).verbs(writing...).done())

			granted := time.Now()
			test.regain(s)
			s.has("object", "second")
			s.took("the grant took effect", granted)
		})
	}
}

// setClusterRules replaces the rules of the ClusterRole with the name of the fixture's namespace.
func (s *fixture) setClusterRules(rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	roles := s.ManagedClient.RbacV1().ClusterRoles()
	s.retry(func() error {
		role, err := roles.Get(s.t.Context(), s.namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		role.Rules = rules
		_, err = roles.Update(s.t.Context(), role, metav1.UpdateOptions{})
		return err
	})
}

// TestExecutorCreateLimitedByName (W3) checks a rule for create with resourceNames. A POST has no
// name, so the rule does not allow it: the agent denies the ManifestWork before it writes anything.
func TestExecutorCreateLimitedByName(t *testing.T) {
	limited := configMaps
	limited.ResourceNames = []string{"object"}
	s := newFixture(t, "w3")
	s.grant("limited", limited)
	work, apply := s.workOf(s.configMap("object", "first")), s.workOf(s.configMap("object", "applied"))
	position := s.now()
	s.create(work)
	message := s.said(s.refused(work.Name), 0)
	s.untouched(position)
	rules := rulesIn(s.t, message)
	if len(rules) != 1 || len(rules[0].ResourceNames) > 0 || !slices.Equal(rules[0].Verbs, []string{"create"}) {
		t.Fatalf("rules in the message = %v, want only create without resourceNames: %s", rules, message)
	}
	// Server-side apply creates with a PATCH, which contains the name.
	apply.Name += "-apply"
	s.create(configured(apply, strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "object"}, workv1.UpdateStrategyTypeServerSideApply)))
	s.reports(apply.Name, metav1.ConditionTrue)
	s.is("object", "applied")
	s.gone(apply.Name)
	s.none("object")

	s.grant("missing", rules[0])
	s.reports(work.Name, metav1.ConditionTrue)
	s.is("object", "first")
}

// TestExecutorReadOnlyNeedsGetOnly (W4) checks that the update strategy ReadOnly requires get on the
// object and no other verb.
func TestExecutorReadOnlyNeedsGetOnly(t *testing.T) {
	s := newFixture(t, "w4")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object"}, Data: map[string]string{"value": "theirs"}}
	if _, err := s.ManagedClient.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.grant("held", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"object"}, Verbs: []string{"get"}})
	position := s.now()
	work := configured(s.workOf(s.configMap("object", "ours")), strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "object"},
		workv1.UpdateStrategyTypeReadOnly, workv1.JsonPath{Name: "value", Path: ".data.value"}))
	s.create(work)
	values := s.reports(work.Name, metav1.ConditionTrue).Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values
	if len(values) != 1 || values[0].Value.String == nil || *values[0].Value.String != "theirs" {
		t.Errorf("feedback = %v, want the value theirs", values)
	}
	s.no("writes of ConfigMaps", s.since(position).of("configmaps", s.namespace).verbs(writing...))
	s.gone(work.Name)
	s.is("object", "theirs")
}

// TestExecutorSpecChangesRequireExecuteAs (W5) checks that a user without execute-as cannot change
// the spec of a ManifestWork, even with permission to write ManifestWorks, by any kind of write.
func TestExecutorSpecChangesRequireExecuteAs(t *testing.T) {
	s := newFixture(t, "w5")
	s.grant("held", configMaps)
	dave := framework.NewCaller(t, s.Hub, "dave")
	dave.May(t, framework.Cluster1, writeWorks)
	works := dave.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	work := s.workOf(s.configMap("object", "first"))
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)

	stored := framework.Must(works.Get(t.Context(), work.Name, metav1.GetOptions{}))(t)
	changed := stored.DeepCopy()
	changed.Spec.Workload.Manifests = rawManifests(s.configMap("object", "dave"))
	patch := fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}}}`, s.configMap("object", "dave"))
	apply := fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q},"spec":{"workload":{"manifests":[%s]}}}`,
		work.Name, s.configMap("object", "dave"))
	created := stored.DeepCopy()
	created.ObjectMeta = metav1.ObjectMeta{Namespace: framework.Cluster1, Name: work.Name + "-dave"}
	attempts := map[string]func() error{
		"update": func() error {
			_, err := works.Update(t.Context(), changed, metav1.UpdateOptions{})
			return err
		},
		"merge patch": func() error {
			_, err := works.Patch(t.Context(), work.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		"server-side apply": func() error {
			_, err := works.Patch(t.Context(), work.Name, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "dave", Force: new(true)})
			return err
		},
		"delete option": func() error {
			_, err := works.Patch(t.Context(), work.Name, types.MergePatchType, []byte(`{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`), metav1.PatchOptions{})
			return err
		},
		"create": func() error {
			_, err := works.Create(t.Context(), created, metav1.CreateOptions{})
			return err
		},
	}
	var rules []rbacv1.PolicyRule
	for name, attempt := range attempts {
		err := attempt()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "execute-as") {
			t.Errorf("%s = %v, want Forbidden with a rule for execute-as", name, err)
			continue
		}
		rules = rulesIn(s.t, err.Error())
	}
	s.is("object", "first")
	if now := framework.Must(works.Get(t.Context(), work.Name, metav1.GetOptions{}))(t); now.Generation != stored.Generation {
		t.Errorf("generation of the ManifestWork = %d, want %d", now.Generation, stored.Generation)
	}
	// A change of metadata does not change the spec, so it requires no execute-as.
	if _, err := works.Patch(t.Context(), work.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"by":"dave"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("patch of a label = %v, want nil", err)
	}

	dave.May(t, framework.Cluster1, rules...)
	framework.Eventually(t, "dave can change the manifests with execute-as", func(context.Context) error { return attempts["merge patch"]() })
	s.has("object", "dave")
	choice := s.reports(work.Name, metav1.ConditionTrue).Status.ExecutorChoice
	if choice == nil || choice.ChosenBy.Username != "admin" || choice.SpecChangedBy.Username != "dave" {
		t.Errorf("executorChoice = %+v, want chosenBy admin and specChangedBy dave", choice)
	}
}

// TestExecutorIsInTheAuditLog (W6) checks that the audit log of the managed cluster contains the
// executor for all writes and reads of applied objects, with each update strategy. If the executor
// loses a permission between the check and the write, the API server denies the write: see W2.
func TestExecutorIsInTheAuditLog(t *testing.T) {
	for _, update := range []workv1.UpdateStrategyType{
		workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeCreateOnly,
	} {
		t.Run(string(update), func(t *testing.T) {
			s := newFixture(t, "w6-"+string(update))
			s.grant("held", configMaps)
			position := s.now()
			option := strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "*"}, update,
				workv1.JsonPath{Name: "value", Path: ".data.value"})
			if update == workv1.UpdateStrategyTypeServerSideApply {
				option.UpdateStrategy.ServerSideApply = &workv1.ServerSideApplyConfig{Force: new(true)}
			}
			work := configured(s.workOf(s.configMap("object", "first"), s.configMap("later", "first")), option)
			s.create(work)
			s.reports(work.Name, metav1.ConditionTrue)
			// The agent repairs a change by another user. With CreateOnly, it only reports the change.
			want := "first"
			if update == workv1.UpdateStrategyTypeCreateOnly {
				want = "drifted"
			}
			s.set("object", "drifted")
			framework.Eventually(t, "the ConfigMap and the feedback have the value "+want, func(ctx context.Context) error {
				work, err := s.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, work.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				value, err := s.value(ctx, "object")
				if err != nil {
					return err
				}
				values := work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values
				if value != want || len(values) != 1 || *values[0].Value.String != want {
					return fmt.Errorf("value = %q, feedback = %v", value, values)
				}
				return nil
			})
			s.eventuallyRead("object", position)

			all := s.since(position)
			objects := all.of("configmaps", s.namespace)
			s.no("requests by the agent itself", objects.asItself())
			mine := objects.as(s.executor)
			if len(mine) != len(objects) {
				t.Errorf("requests by the executor = %d of %d, want all of:\n\t%s", len(mine), len(objects), objects)
			}
			creates := "create"
			if update == workv1.UpdateStrategyTypeServerSideApply {
				creates = "patch"
			}
			s.some(creates+" by the executor", mine.verbs(creates).done(), all)

			// The agent deletes objects as itself: those that were removed from the ManifestWork, and
			// all objects of a deleted ManifestWork.
			position = s.now()
			s.change(work.Name, func(spec *workv1.ManifestWorkSpec) { spec.Workload.Manifests = spec.Workload.Manifests[:1] })
			framework.Eventually(t, "the ConfigMap that was removed from the ManifestWork does not exist", func(ctx context.Context) error {
				_, err := s.value(ctx, "later")
				return framework.IsGone(err)
			})
			s.gone(work.Name)
			s.none("object")
			objects = s.since(position).of("configmaps", s.namespace)
			s.no("deletes by the executor", objects.impersonating().verbs("delete", "deletecollection"))
			if deletes := objects.asItself().verbs("delete").done(); len(deletes) != 2 {
				t.Errorf("deletes by the agent = %d, want 2 among:\n\t%s", len(deletes), objects)
			}
		})
	}
}

// eventuallyRead waits until the executor has read a ConfigMap, with a GET or a PATCH.
func (s *fixture) eventuallyRead(name string, position int64) {
	s.t.Helper()
	framework.Eventually(s.t, "the executor has read ConfigMap "+name, func(context.Context) error {
		all := s.since(position).of("configmaps", s.namespace).named(name)
		if len(all.as(s.executor).verbs("get", "patch").done()) == 0 {
			return fmt.Errorf("requests =\n\t%s", all)
		}
		return nil
	})
}

// TestExecutorAdoptedObjectsStay (W7) checks that the deletion of a ManifestWork keeps objects that
// existed before it, and removes its own annotations and owner references from them.
func TestExecutorAdoptedObjectsStay(t *testing.T) {
	for _, update := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeCreateOnly} {
		t.Run(string(update), func(t *testing.T) {
			s := newFixture(t, "w7-"+string(update)+"")
			theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{"keep": "me"}}, Data: map[string]string{"other": "value"}}
			before := framework.Must(s.ManagedClient.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
			s.grant("held", configMaps)
			work := s.workOf(s.configMap("theirs", "ours"), s.configMap("made", "ours"))
			work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground}
			s.create(configured(work, strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "*"}, update)))
			s.reports(work.Name, metav1.ConditionTrue)
			if update != workv1.UpdateStrategyTypeCreateOnly {
				s.is("theirs", "ours")
			}
			s.gone(work.Name)
			s.none("made")
			after := framework.Must(s.ManagedClient.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "theirs", metav1.GetOptions{}))(t)
			if after.UID != before.UID || after.DeletionTimestamp != nil || after.Labels["keep"] != "me" || after.Data["other"] != "value" {
				t.Errorf("ConfigMap after the deletion = %v, want the same UID, label keep=me and data other=value", after)
			}
			if _, marked := after.Annotations[decide.AdoptedAnnotation]; marked || len(after.OwnerReferences) > 0 {
				t.Errorf("annotations = %v and ownerReferences = %v after the deletion, want none of the agent", after.Annotations, after.OwnerReferences)
			}
		})
	}
}
