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

	agentwork "open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// These are the weaknesses of executors as others have built them, one test each.

// W1: values that are reported are read by the executor, which must be allowed to.
func TestExecutorW1FeedbackReadsNothingForbidden(t *testing.T) {
	inBothModes(t, func(t *testing.T, mode string) {
		s := newScene(t, "w1-"+mode)
		const password = "correct-horse-battery-staple"
		secrets := s.ManagedClient.CoreV1().Secrets("kube-system")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, StringData: map[string]string{"password": password}}
		created := framework.Must(secrets.Create(t.Context(), secret, metav1.CreateOptions{}))(t)
		s.atEnd(func(ctx context.Context) error { return secrets.Delete(ctx, s.namespace, metav1.DeleteOptions{}) })
		encoded := strings.Trim(string(framework.Must(json.Marshal(created.Data["password"]))(t)), `"`)

		manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":"kube-system"}}`, s.namespace)
		place := s.now()
		var works []*workv1.ManifestWork
		for name, update := range map[string]workv1.UpdateStrategyType{
			"update": workv1.UpdateStrategyTypeUpdate, "readonly": workv1.UpdateStrategyTypeReadOnly, "apply": workv1.UpdateStrategyTypeServerSideApply,
		} {
			work := s.workOf(manifest)
			work.Name += "-" + name
			option := strategy(workv1.ResourceIdentifier{Resource: "secrets", Namespace: new("kube-system"), Name: s.namespace}, update,
				workv1.JsonPath{Name: "password", Path: ".data.password"})
			// What a rule says of the object would tell its content bit by bit.
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
					t.Errorf("%s has the condition %v", work.Name, condition)
				}
			}
			for _, secret := range []string{password, encoded} {
				if strings.Contains(string(framework.Must(json.Marshal(refused.Status))(t)), secret) {
					t.Errorf("the status of %s has the Secret's value", work.Name)
				}
			}
		}
		s.no("requests for Secrets", s.since(place).filter(func(event *auditv1.Event) bool { return event.ObjectRef.Resource == "secrets" }))
		log := string(framework.Must(os.ReadFile(s.Members[0].Agent.LogFile))(t))
		for _, secret := range []string{password, encoded} {
			if strings.Contains(log, secret) {
				t.Error("the log of the agent has the Secret's value")
			}
		}

		// Whoever may read it has it reported, until they may not any more.
		readOnly := s.namespace + "-readonly"
		rules := rulesIn(s.t, s.said(s.reports(readOnly, metav1.ConditionFalse), 0))
		place = s.now()
		s.grantIn("kube-system", s.namespace, rules, accountSubject(s.executor))
		reported := s.reports(readOnly, metav1.ConditionTrue).Status.ResourceStatus.Manifests[0]
		if values := reported.StatusFeedbacks.Values; len(values) != 1 || values[0].Value.String == nil || *values[0].Value.String != encoded {
			t.Errorf("it reports %v", values)
		}
		if !meta.IsStatusConditionTrue(reported.Conditions, "Guessed") {
			t.Errorf("its conditions are %v", reported.Conditions)
		}
		if all := s.since(place).filter(func(event *auditv1.Event) bool { return event.ObjectRef.Resource == "secrets" }); mode == modeImpersonate {
			s.some("read by the executor", all.as(s.executor).named(s.namespace).verbs("get").done(), all)
			s.no("requests of the agent itself that show more than metadata", all.asItself().filter(func(event *auditv1.Event) bool {
				return !slices.Contains([]string{"list", "watch"}, event.Verb) || event.ResponseObject != nil && strings.Contains(string(event.ResponseObject.Raw), encoded)
			}))
		}
		if err := s.ManagedClient.RbacV1().RoleBindings("kube-system").Delete(t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.refused(readOnly)
	})
}

// W2: in whatever way a permission is taken, the next write is refused.
func TestExecutorW2RevocationIsNoticed(t *testing.T) {
	inBothModes(t, func(t *testing.T, mode string) {
		for _, test := range []struct {
			name   string
			grant  func(*scene)
			revoke func(*scene)
			regain func(*scene)
		}{
			{
				"subjects",
				func(s *scene) { s.grant("held", configMaps) },
				func(s *scene) { s.setSubjects("held", *framework.UserSubject("somebody-else")) },
				func(s *scene) { s.setSubjects("held", accountSubject(s.executor)) },
			},
			{
				"role",
				func(s *scene) { s.grant("held", configMaps) },
				func(s *scene) { s.setRules("held", ruleFor("", "configmaps", "get")) },
				func(s *scene) { s.setRules("held", configMaps) },
			},
			{
				"group",
				func(s *scene) {
					s.grantIn(s.namespace, "held", []rbacv1.PolicyRule{configMaps}, groupSubject("system:serviceaccounts:"+executorHome))
				},
				func(s *scene) { s.setSubjects("held", groupSubject("system:serviceaccounts:elsewhere")) },
				func(s *scene) { s.setSubjects("held", groupSubject("system:serviceaccounts:"+executorHome)) },
			},
			{
				"user",
				func(s *scene) {
					s.grantIn(s.namespace, "held", []rbacv1.PolicyRule{configMaps}, *framework.UserSubject("system:serviceaccount:" + s.executor.Namespace + ":" + s.executor.Name))
				},
				func(s *scene) { s.setSubjects("held") },
				func(s *scene) { s.setSubjects("held", groupSubject("system:authenticated")) },
			},
			{
				"binding",
				func(s *scene) { s.grant("held", configMaps) },
				func(s *scene) { s.unbind("held") },
				func(s *scene) { s.bind(s.namespace, "held", accountSubject(s.executor)) },
			},
			{
				"role-gone",
				func(s *scene) { s.grant("held", configMaps) },
				func(s *scene) {
					if err := s.ManagedClient.RbacV1().Roles(s.namespace).Delete(s.t.Context(), "held", metav1.DeleteOptions{}); err != nil {
						s.t.Fatal(err)
					}
				},
				func(s *scene) { s.grant("held-again", configMaps) },
			},
			{
				"clusterrole",
				func(s *scene) { s.grantEverywhere(s.namespace, configMaps) },
				func(s *scene) { s.setClusterRules(ruleFor("", "configmaps", "get", "list")) },
				func(s *scene) { s.setClusterRules(ruleFor("*", "*", "*")) },
			},
		} {
			t.Run(test.name, func(t *testing.T) {
				s := newScene(t, "w2-"+test.name+"-"+mode)
				test.grant(s)
				work := s.workOf(s.configMap("object", "first"))
				s.create(work)
				s.reports(work.Name, metav1.ConditionTrue)

				revoked := time.Now()
				test.revoke(s)
				if mode == modeImpersonate {
					// The API server itself judges every write, whatever the agent knows.
					s.denied(authorizationv1.ResourceAttributes{Verb: "update", Version: "v1", Resource: "configmaps", Namespace: s.namespace, Name: "object"})
				} else {
					s.refused(work.Name)
				}
				place := s.now()
				s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
					spec.Workload.Manifests = rawManifests(s.configMap("object", "second"))
				})
				s.refused(work.Name)
				s.took("a revocation had its effect", revoked)
				s.is("object", "first")
				s.no("writes", s.since(place).of("configmaps", s.namespace).verbs(writing...).done())

				granted := time.Now()
				test.regain(s)
				s.has("object", "second")
				s.took("a grant had its effect", granted)
			})
		}
	})
}

// setClusterRules replaces the rules of the ClusterRole that is named after the scene.
func (s *scene) setClusterRules(rules ...rbacv1.PolicyRule) {
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

// W3: a role that allows to create some names allows no create, since a POST has none.
// The work is refused before anything is written, unless the agent only reviews: it then
// has the semantics of the seed, which asks with the name.
func TestExecutorW3CreateLimitedByName(t *testing.T) {
	limited := configMaps
	limited.ResourceNames = []string{"object"}
	t.Run(modeImpersonate, func(t *testing.T) {
		s := newScene(t, "w3-impersonate")
		s.grant("limited", limited)
		work, apply := s.workOf(s.configMap("object", "first")), s.workOf(s.configMap("object", "applied"))
		place := s.now()
		s.create(work)
		message := s.said(s.refused(work.Name), 0)
		s.untouched(place)
		rules := rulesIn(s.t, message)
		if len(rules) != 1 || len(rules[0].ResourceNames) > 0 || !slices.Equal(rules[0].Verbs, []string{"create"}) {
			t.Errorf("not only to create without a name is missing: %s", message)
		}
		// Server-side apply creates by PATCH, which has the name.
		apply.Name += "-apply"
		s.create(configured(apply, strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "object"}, workv1.UpdateStrategyTypeServerSideApply)))
		s.reports(apply.Name, metav1.ConditionTrue)
		s.is("object", "applied")
		s.gone(apply.Name)
		s.none("object")

		s.grant("missing", rules...)
		s.reports(work.Name, metav1.ConditionTrue)
		s.is("object", "first")
	})
	t.Run(modeReview, func(t *testing.T) {
		agentMode(t, modeReview)
		s := newScene(t, "w3-review")
		s.grant("limited", limited)
		place := s.now()
		work := s.workOf(s.configMap("object", "first"))
		s.create(work)
		s.reports(work.Name, metav1.ConditionTrue)
		s.is("object", "first")
		all := s.since(place)
		s.some("create by the agent itself", all.of("configmaps", s.namespace).asItself().verbs("create").done(), all)
		s.no("acting as somebody else", all.impersonating())
	})
}

// W4: to look at an object takes to be allowed to read it, and no more.
func TestExecutorW4ReadOnlyNeedsGetOnly(t *testing.T) {
	inBothModes(t, func(t *testing.T, mode string) {
		s := newScene(t, "w4-"+mode)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object"}, Data: map[string]string{"value": "theirs"}}
		if _, err := s.ManagedClient.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.grant("held", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"object"}, Verbs: []string{"get"}})
		place := s.now()
		work := configured(s.workOf(s.configMap("object", "ours")), strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "object"},
			workv1.UpdateStrategyTypeReadOnly, workv1.JsonPath{Name: "value", Path: ".data.value"}))
		s.create(work)
		values := s.reports(work.Name, metav1.ConditionTrue).Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values
		if len(values) != 1 || values[0].Value.String == nil || *values[0].Value.String != "theirs" {
			t.Errorf("it reports %v", values)
		}
		s.no("writes", s.since(place).of("configmaps", s.namespace).verbs(writing...))
		s.gone(work.Name)
		s.is("object", "theirs")
	})
}

// W5: whoever may change a work, but not have it act as its executor, cannot change what
// it does, by whatever kind of write.
func TestExecutorW5ManifestsAreTheExecutors(t *testing.T) {
	s := newScene(t, "w5")
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
			t.Errorf("%s: not refused for execute-as: %v", name, err)
			continue
		}
		rules = rulesIn(s.t, err.Error())
	}
	s.is("object", "first")
	if now := framework.Must(works.Get(t.Context(), work.Name, metav1.GetOptions{}))(t); now.Generation != stored.Generation {
		t.Errorf("the work went from generation %d to %d", stored.Generation, now.Generation)
	}
	// What the work does stays as it is if only its metadata changes.
	if _, err := works.Patch(t.Context(), work.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"by":"dave"}}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}

	dave.May(t, framework.Cluster1, rules...)
	framework.Eventually(t, "dave may have the work act as its executor", func(context.Context) error { return attempts["merge patch"]() })
	s.has("object", "dave")
	choice := s.reports(work.Name, metav1.ConditionTrue).Status.ExecutorChoice
	if choice == nil || choice.ChosenBy.Username != "admin" || choice.SpecChangedBy.Username != "dave" {
		t.Errorf("who answers for it: %+v", choice)
	}
}

// W6: whatever a work does by any update strategy, the audit log of the managed cluster
// names its executor, for writes and for reads. What an executor loses between the check
// and the write is denied by the API server: see W2.
func TestExecutorW6AuditLogNamesTheExecutor(t *testing.T) {
	for _, update := range []workv1.UpdateStrategyType{
		workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeCreateOnly,
	} {
		t.Run(string(update), func(t *testing.T) {
			s := newScene(t, "w6-"+string(update))
			s.grant("held", configMaps)
			place := s.now()
			option := strategy(workv1.ResourceIdentifier{Resource: "configmaps", Namespace: new(s.namespace), Name: "*"}, update,
				workv1.JsonPath{Name: "value", Path: ".data.value"})
			if update == workv1.UpdateStrategyTypeServerSideApply {
				option.UpdateStrategy.ServerSideApply = &workv1.ServerSideApplyConfig{Force: new(true)}
			}
			work := configured(s.workOf(s.configMap("object", "first"), s.configMap("later", "first")), option)
			s.create(work)
			s.reports(work.Name, metav1.ConditionTrue)
			// A change that somebody else makes is repaired, or at least reported.
			want := "first"
			if update == workv1.UpdateStrategyTypeCreateOnly {
				want = "drifted"
			}
			s.set("object", "drifted")
			framework.Eventually(t, "the drift is dealt with", func(ctx context.Context) error {
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
					return fmt.Errorf("the object has %q, the work reports %v", value, values)
				}
				return nil
			})
			s.eventuallyRead("object", place)

			all := s.since(place)
			objects := all.of("configmaps", s.namespace)
			s.no("requests by the agent itself", objects.asItself())
			mine := objects.as(s.executor)
			if len(mine) != len(objects) {
				t.Errorf("not all requests are the executor's:\n\t%s", objects)
			}
			creates := "create"
			if update == workv1.UpdateStrategyTypeServerSideApply {
				creates = "patch"
			}
			s.some(creates+" by the executor", mine.verbs(creates).done(), all)

			// The removal of what leaves the work, and of all of it, is the agent's.
			place = s.now()
			s.change(work.Name, func(spec *workv1.ManifestWorkSpec) { spec.Workload.Manifests = spec.Workload.Manifests[:1] })
			framework.Eventually(t, "what left the work is gone", func(ctx context.Context) error {
				_, err := s.value(ctx, "later")
				return framework.IsGone(err)
			})
			s.gone(work.Name)
			s.none("object")
			objects = s.since(place).of("configmaps", s.namespace)
			s.no("deletes by the executor", objects.impersonating().verbs("delete", "deletecollection"))
			if deletes := objects.asItself().verbs("delete").done(); len(deletes) != 2 {
				t.Errorf("not each of the two objects was deleted by the agent:\n\t%s", objects)
			}
		})
	}
}

// eventuallyRead waits until the executor has read an object.
func (s *scene) eventuallyRead(name string, place int64) {
	s.t.Helper()
	framework.Eventually(s.t, "the executor reads "+name, func(context.Context) error {
		all := s.since(place).of("configmaps", s.namespace).named(name)
		if len(all.as(s.executor).verbs("get", "patch").done()) == 0 {
			return fmt.Errorf("among\n\t%s", all)
		}
		return nil
	})
}

// W7: an object that was there before its work stays when the work is deleted, as it is.
func TestExecutorW7AdoptedObjectsStay(t *testing.T) {
	inBothModes(t, func(t *testing.T, mode string) {
		for _, update := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeCreateOnly} {
			t.Run(string(update), func(t *testing.T) {
				s := newScene(t, "w7-"+string(update)+"-"+mode)
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
					t.Errorf("it is not what it was: %v", after)
				}
				if _, marked := after.Annotations[agentwork.AdoptedAnnotation]; marked || len(after.OwnerReferences) > 0 {
					t.Errorf("the work has left its marks: annotations %v, owners %v", after.Annotations, after.OwnerReferences)
				}
			})
		}
	})
}
