package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// testIdleExecutorChoice checks that the agent does not write the status again after the hub has
// written status.executorChoice.
func testIdleExecutorChoice(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.run()
	name := c.create("", c.actsAs(), configMap("a", "one"))
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	stamp := []byte(`{"status":{"executorChoice":{"chosenBy":{"username":"u"},"chosenAt":"2026-01-01T00:00:00Z","specChangedBy":{"username":"u"},"specChangedAt":"2026-01-01T00:00:00Z"}}}`)
	if _, err := c.works().Patch(t.Context(), name, types.MergePatchType, stamp, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.label(name)
	var mu sync.Mutex
	var reported []string
	hook := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/manifestworks/"+name+"/status") {
			mu.Lock()
			reported = append(reported, request.Method)
			mu.Unlock()
		}
		return send()
	})
	c.hubExchanges.Store(&hook)
	for range 5 {
		c.label(name)
	}
	c.hubExchanges.Store(nil)
	mu.Lock()
	defer mu.Unlock()
	if len(reported) > 0 {
		t.Errorf("requests for the unchanged status = %v, want none", reported)
	}
	work, err := c.works().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if choice := work.Status.ExecutorChoice; choice == nil || choice.ChosenBy.Username != "u" {
		t.Errorf("executorChoice = %+v, want chosenBy u", choice)
	}
}

// testNeverDeleted checks that objects stay if the executor was never allowed to delete them, even if
// the ManifestWork no longer orphans them.
func testNeverDeleted(t *testing.T, c *cluster) {
	c.grant("configmaps", "get,create,update,patch")
	c.run()
	orphan := func(spec *workv1.ManifestWorkSpec) {
		spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	}
	name := c.create("", c.actsAs(orphan), configMap("a", "one"), configMap("b", "one"), configMap("c", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.grantRules(
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"b"}, Verbs: []string{"delete"}},
	)
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.DeleteOption = nil
		spec.Workload.Manifests = []workv1.Manifest{c.manifest(configMap("b", "two"))}
	})
	c.hasConfigMap("b", "two")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("a", "one")

	refused := c.create("-refused", c.actsAs(orphan), configMap("d", "one"))
	c.condition(refused, workv1.WorkApplied, metav1.ConditionTrue)
	c.update(refused, func(spec *workv1.ManifestWorkSpec) { spec.DeleteOption = nil })
	c.condition(refused, workv1.WorkApplied, metav1.ConditionFalse)
	c.delete(refused)
	c.gone(refused)
	c.hasConfigMap("d", "one")

	// The object that the executor is allowed to delete is deleted.
	c.delete(name)
	c.gone(name)
	c.noConfigMap("b")
	c.hasConfigMap("c", "one")
}

// testCutOffWrite deletes a ManifestWork while the cluster creates its object, and completes the
// request after the agent has given it up and has found no object. The agent removes the object.
func testCutOffWrite(t *testing.T, c *cluster) {
	var once sync.Once
	reached, created := make(chan struct{}), make(chan error, 1)
	var cutOff atomic.Pointer[[]byte]
	var late atomic.Bool
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if !strings.Contains(request.URL.Path, "/namespaces/"+c.name+"/configmaps") {
			return send()
		}
		var body []byte
		first := false
		if request.Method == http.MethodPost {
			once.Do(func() { first = true })
		}
		if first {
			var err error
			if body, err = io.ReadAll(request.Body); err != nil {
				return nil, err
			}
			close(reached)
			<-request.Context().Done()
			cutOff.Store(&body)
			return nil, request.Context().Err()
		}
		response, err := send()
		if cut := cutOff.Load(); cut != nil && request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/configmaps/a") && late.CompareAndSwap(false, true) {
			object := &corev1.ConfigMap{}
			failed := json.Unmarshal(*cut, object)
			if failed == nil {
				_, failed = c.kube.CoreV1().ConfigMaps(c.name).Create(context.WithoutCancel(t.Context()), object, metav1.CreateOptions{})
			}
			created <- failed
		}
		return response, err
	})
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	await.Done(t, "the agent creates the object", reached)
	c.delete(name)
	if err := await.Done(t, "the cluster completes the request", created); err != nil {
		t.Fatal(err)
	}
	c.noConfigMap("a")
	c.gone(name)
	c.noConfigMap("a")
}

// testRefusedReviewError checks that feedback that was removed after a revocation is not reported
// again while SubjectAccessReviews fail.
func testRefusedReviewError(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.run()
	name := c.create("", c.actsAs(reports), configMap("a", "one"))
	c.condition(name, "Read", metav1.ConditionTrue)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.revoke()
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if !strings.HasSuffix(request.URL.Path, "/subjectaccessreviews") {
			return send()
		}
		return &http.Response{
			StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": []string{"application/json"}}, Request: request,
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"out of order","reason":"InternalError","code":500}`)),
		}, nil
	})
	c.grant("configmaps", allVerbs)
	eventually(t, "condition Applied contains the error of the SubjectAccessReview", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		manifest := work.Status.ResourceStatus.Manifests[0]
		if len(manifest.StatusFeedbacks.Values) > 0 || meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
			t.Fatalf("status = %+v, want no feedback and Applied not True", work.Status)
		}
		if message := appliedOf(work, 0).Message; !strings.Contains(message, "out of order") {
			return fmt.Errorf("message of condition Applied = %q", message)
		}
		return nil
	})
	c.onExchange(nil)
	work := c.condition(name, "Read", metav1.ConditionTrue)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if values := work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values; len(values) != 1 || *values[0].Value.String != "one" {
		t.Errorf("feedback = %+v, want one", values)
	}
}

// testRevokedMidway checks that a pass stops at the first request that the cluster refuses because the
// executor has lost its permissions, although a quota has refused an earlier one.
func testRevokedMidway(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	var revoked sync.Once
	var later atomic.Int32
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if request.Method != http.MethodPost || !c.aboutConfigMaps(seen{path: request.URL.Path}) {
			return send()
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		object := &corev1.ConfigMap{}
		if err := json.Unmarshal(body, object); err != nil {
			return nil, err
		}
		switch object.Name {
		case "a":
			return &http.Response{
				StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": []string{"application/json"}}, Request: request,
				Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"configmaps \"a\" is forbidden: exceeded quota: q","reason":"Forbidden","code":403}`)),
			}, nil
		case "b":
			revoked.Do(func() { err = c.revokeNow(request.Context()) })
			if err != nil {
				return nil, err
			}
		case "c":
			later.Add(1)
		}
		return send()
	})
	c.run()
	name := c.create("", c.actsAs(), configMap("a", "one"), configMap("b", "one"), configMap("c", "one"))
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	for i := range 3 {
		if message := appliedOf(work, i).Message; !strings.Contains(message, "the executor "+c.name+"/worker cannot get, create") {
			t.Errorf("message of manifest %d = %q, want the permissions that the executor lacks", i, message)
		}
	}
	if got := later.Load(); got != 0 {
		t.Errorf("requests that create c after the cluster has refused b = %d, want 0", got)
	}
	c.onExchange(nil)
	c.delete(name)
	c.gone(name)
}

// revokeNow removes the permissions of the executor, and returns when the cluster denies them.
func (c *cluster) revokeNow(ctx context.Context) error {
	if err := c.kube.RbacV1().RoleBindings(c.name).Delete(ctx, "worker", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error {
		review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + c.name + ":worker",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Version: "v1", Resource: "configmaps", Namespace: c.name},
		}}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			err = errors.New("the executor is still allowed to create ConfigMaps")
		}
		return err
	})
}
