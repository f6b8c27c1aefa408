package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// configMap returns an object with the given size of data.
func configMap(namespace, name string, revision, bytes int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(revision)},
		Data:       map[string]string{"data": strings.Repeat("x", bytes)},
	}
}

var configMaps = corev1.Resource("configmaps")

// synced returns a Counter that has listed these objects.
func synced(t *testing.T, limits Limits, seen ...any) *Counter {
	t.Helper()
	c := NewCounter(configMaps, limits)
	c.Serve(&cache.ListWatch{}, &corev1.ConfigMap{})
	if err := (*watched)(c).Replace(seen, "10"); err != nil {
		t.Fatal(err)
	}
	return c
}

func create(namespace, name string, bytes int64) Write {
	return Write{Namespace: namespace, Name: name, After: bytes, Creates: true}
}

// take makes a write and stores it, unless it is rejected.
func take(t *testing.T, c *Counter, w Write, revision int) error {
	t.Helper()
	hold := c.Hold()
	if err := hold.Take(t.Context(), w); err != nil {
		hold.Settle(nil, 0)
		return err
	}
	stored := configMap(w.Namespace, w.Name, revision, 0)
	hold.Settle(stored, w.After)
	return nil
}

func expectForbidden(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("error = %v, want Forbidden", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error = %v, want it to contain %q", err, part)
		}
	}
}

func TestObjects(t *testing.T) {
	c := synced(t, Limits{Objects: 2}, configMap("a", "one", 5, 0))
	if err := take(t, c, create("a", "two", 10), 11); err != nil {
		t.Fatal(err)
	}
	expectForbidden(t, take(t, c, create("a", "three", 10), 12),
		`configmaps "three" is forbidden`, `namespace "a"`, "used 2, requested 1, limited to 2", "--namespace-quota-objects=configmaps=2")
	if err := take(t, c, create("b", "one", 10), 13); err != nil {
		t.Errorf("Take() in another namespace = %v, want no error", err)
	}
	c.Deleted(configMap("a", "one", 14, 0))
	if err := take(t, c, create("a", "three", 10), 15); err != nil {
		t.Errorf("Take() after a deletion = %v, want no error", err)
	}
}

func TestBytes(t *testing.T) {
	c := synced(t, Limits{Objects: 10, Bytes: 1000})
	if err := take(t, c, create("a", "one", 900), 11); err != nil {
		t.Fatal(err)
	}
	expectForbidden(t, take(t, c, create("a", "two", 101), 12), "used 900, requested 101, limited to 1000", "--namespace-quota-bytes=configmaps=1000")
	update := func(before, after int64) Write {
		return Write{Namespace: "a", Name: "one", Before: before, After: after}
	}
	expectForbidden(t, take(t, c, update(900, 1001), 12), "bytes of configmaps")
	if err := take(t, c, update(900, 1000), 13); err != nil {
		t.Errorf("Take() of growth up to the limit = %v, want no error", err)
	}
	upkeep := update(1000, 1250)
	upkeep.Upkeep, upkeep.Reserve = true, true
	if err := take(t, c, upkeep, 14); err != nil {
		t.Errorf("Take() of a status within the reserve = %v, want no error", err)
	}
	upkeep.Before, upkeep.After = 1250, 1251
	expectForbidden(t, take(t, c, upkeep, 15))
	small := Write{Namespace: "a", Name: "two", Before: 50, After: 100, Upkeep: true, Reserve: true}
	if err := take(t, c, small, 16); err != nil {
		t.Errorf("Take() of the status of a small object in a full namespace = %v, want no error", err)
	}
}

// An object of a namespace over its quota may shrink or stay unchanged.
func TestOverQuota(t *testing.T) {
	c := synced(t, Limits{Objects: 1, Bytes: 100}, configMap("a", "one", 5, 1000), configMap("a", "two", 6, 1000))
	for _, after := range []int64{1000, 999, 1} {
		if err := take(t, c, Write{Namespace: "a", Name: "one", Before: 1000, After: after}, 11); err != nil {
			t.Errorf("Take() of an update from 1000 to %d bytes = %v, want no error", after, err)
		}
	}
	expectForbidden(t, take(t, c, Write{Namespace: "a", Name: "one", Before: 1000, After: 1001}, 12))
	if err := take(t, synced(t, Limits{}, configMap("a", "one", 5, 1000)), create("a", "two", 1<<40), 11); err != nil {
		t.Errorf("Take() without a limit = %v, want no error", err)
	}
}

// Concurrent writes never exceed a limit.
func TestConcurrentWrites(t *testing.T) {
	for name, limits := range map[string]Limits{"objects": {Objects: 50}, "bytes": {Bytes: 500}} {
		t.Run(name, func(t *testing.T) {
			c := synced(t, limits)
			holds := make(chan *Hold, 200)
			var running sync.WaitGroup
			for i := range 200 {
				running.Go(func() {
					hold := c.Hold()
					if hold.Take(t.Context(), create("a", fmt.Sprint(i), 10)) == nil {
						holds <- hold
					}
				})
			}
			running.Wait()
			close(holds)
			if got := len(holds); got != 50 {
				t.Fatalf("number of admitted writes = %d, want 50", got)
			}
			// Failed and dry-run writes release their reservation.
			for hold := range holds {
				hold.Settle(nil, 0)
			}
			if len(c.namespaces) != 0 {
				t.Errorf("namespaces = %v, want none", slices.Collect(maps.Keys(c.namespaces)))
			}
		})
	}
}

// A store may retry a write. Only the last attempt is counted.
func TestRetries(t *testing.T) {
	c := synced(t, Limits{Objects: 1, Bytes: 100})
	hold := c.Hold()
	for i := range 5 {
		if err := hold.Take(t.Context(), create("a", fmt.Sprint("generated-", i), 100)); err != nil {
			t.Fatalf("Take() in attempt %d = %v, want no error", i, err)
		}
	}
	hold.Settle(configMap("a", "generated-4", 11, 0), 100)
	expectForbidden(t, take(t, c, create("a", "other", 1), 12))
}

// An event of the watch overrides an older write of this process.
func TestWatchAndWrites(t *testing.T) {
	c := synced(t, Limits{Objects: 1})
	w := (*watched)(c)
	hold := c.Hold()
	if err := hold.Take(t.Context(), create("a", "one", 10)); err != nil {
		t.Fatal(err)
	}
	// The watch reports the creation and the deletion before the write returns.
	if err := errors.Join(w.Add(configMap("a", "one", 11, 0)), w.Delete(configMap("a", "one", 12, 0))); err != nil {
		t.Fatal(err)
	}
	hold.Settle(configMap("a", "one", 11, 0), 10)
	if err := take(t, c, create("a", "two", 10), 13); err != nil {
		t.Errorf("Take() after a deletion reported by the watch = %v, want no error", err)
	}
	// A list that is older than a write of this process keeps its object; a newer list removes it.
	if err := w.Replace(nil, "12"); err != nil {
		t.Fatal(err)
	}
	expectForbidden(t, take(t, c, create("a", "three", 10), 14))
	if err := w.Replace(nil, "13"); err != nil {
		t.Fatal(err)
	}
	if err := take(t, c, create("a", "three", 10), 14); err != nil {
		t.Errorf("Take() after a newer list = %v, want no error", err)
	}
}

func TestRun(t *testing.T) {
	events := watch.NewFake()
	c := NewCounter(configMaps, Limits{Objects: 2})
	if err := take(t, c, create("a", "unserved", 1), 1); err != nil {
		t.Errorf("Take() without a store = %v, want no error", err)
	}
	c.Serve(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}, Items: []corev1.ConfigMap{*configMap("a", "one", 5, 0)}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}, listOnly{}), &corev1.ConfigMap{})
	if c.Synced() {
		t.Error("Synced() before the first list = true, want false")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if err := take(t, c, create("a", "two", 1), 11); err != nil {
		t.Fatal(err)
	}
	expectForbidden(t, take(t, c, create("a", "three", 1), 12))
	events.Delete(configMap("a", "one", 13, 0))
	await.True(t, "Take() after a deletion admits the object", func() bool { return take(t, c, create("a", "three", 1), 14) == nil })
}

// TestWritesWaitForTheCount checks that writes wait up to ten seconds until the stored objects are counted.
func TestWritesWaitForTheCount(t *testing.T) {
	for after, counted := range map[time.Duration]bool{9 * time.Second: true, 11 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			c := NewCounter(configMaps, Limits{Objects: 1})
			c.Serve(&cache.ListWatch{}, &corev1.ConfigMap{})
			time.AfterFunc(after, func() { _ = (*watched)(c).Replace(nil, "10") })
			err := take(t, c, create("a", "one", 1), 11)
			if (err == nil) != counted || err != nil && !apierrors.IsServiceUnavailable(err) {
				t.Errorf("Take() of a write while the objects are counted after %s = %v, want admitted = %t, or 503", after, err, counted)
			}
		})
	}
}

// listOnly is a client that does not stream lists.
type listOnly struct{}

func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

// Size is within 30 % of the size of the JSON, regardless of the content.
func TestSize(t *testing.T) {
	now := metav1.Now()
	labels := map[string]string{}
	for i := range 500 {
		labels[fmt.Sprintf("label-%04d.example.com/name", i)] = "value"
	}
	labelled := configMap("a", "labelled", 5, 0)
	labelled.Labels = labels
	managed := configMap("a", "managed", 5, 0)
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", Time: &now, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:` + strings.Repeat("y", 5000) + `":{}}}`)}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", CreationTimestamp: now}}
	for i := range 100 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("container-", i), Image: "registry.example.com/image:tag"})
	}
	// Each of these characters has six bytes in JSON.
	escaped, embedded := configMap("a", "escaped", 5, 0), configMap("a", "embedded", 5, 0)
	escaped.Annotations = map[string]string{"a": strings.Repeat("<>&\x01", 1000), "b": strings.Repeat("\"\\\n\t", 1000)}
	embedded.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("<>&", 1000) + `":{}}`)}}
	event := &metav1.WatchEvent{Object: runtime.RawExtension{Raw: []byte(`{"a":"` + strings.Repeat(`<>&\"`, 1000) + `"}`)}}
	for _, obj := range []runtime.Object{configMap("a", "large", 5, 100_000), labelled, managed, pod, escaped, embedded, event} {
		encoded, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := float64(Size(obj)), float64(len(encoded)); got < want*0.7 || got > want*1.3 {
			t.Errorf("Size(%T) = %v, want about %v", obj, got, want)
		}
	}
	if got := Items(&corev1.PodSpec{Containers: pod.Spec.Containers, NodeSelector: labels}); got != 600 {
		t.Errorf("Items() = %d, want 600", got)
	}
	if got := Size(nil); got != 0 {
		t.Errorf("Size(nil) = %d, want 0", got)
	}
}

func TestObjectLimits(t *testing.T) {
	limits := ObjectLimits{Labels: 2, LabelBytes: 20, Annotations: 1, AnnotationBytes: 10, OwnerReferences: 1, Finalizers: 1, ManagedFields: 1, SpecBytes: 100, StatusBytes: 300, StatusItems: 3}
	parts := func(change func(*metav1.ObjectMeta, *corev1.PodSpec, *corev1.PodStatus)) Parts {
		pod := &corev1.Pod{}
		change(&pod.ObjectMeta, &pod.Spec, &pod.Status)
		return PartsOf(pod, &pod.Spec, &pod.Status)
	}
	for name, test := range map[string]struct {
		change func(*metav1.ObjectMeta, *corev1.PodSpec, *corev1.PodStatus)
		want   string
	}{
		"labels": {func(m *metav1.ObjectMeta, _ *corev1.PodSpec, _ *corev1.PodStatus) {
			m.Labels = map[string]string{"a": "", "b": "", "c": ""}
		}, "metadata.labels: Too long: must have at most 2 entries, found 3; remove some, or ask an administrator to raise the limit with --object-limits=pods.labels=2"},
		"label-bytes": {func(m *metav1.ObjectMeta, _ *corev1.PodSpec, _ *corev1.PodStatus) {
			m.Labels = map[string]string{"a": strings.Repeat("x", 20)}
		}, "metadata.labels: Too long: must have at most 20 bytes, found 21"},
		"annotations": {func(m *metav1.ObjectMeta, _ *corev1.PodSpec, _ *corev1.PodStatus) {
			m.Annotations = map[string]string{"a": "", "b": ""}
		}, "metadata.annotations: Too long"},
		"annotation-bytes": {func(m *metav1.ObjectMeta, _ *corev1.PodSpec, _ *corev1.PodStatus) {
			m.Annotations = map[string]string{"a": strings.Repeat("x", 10)}
		}, "metadata.annotations: Too long"},
		"owner-references": {func(m *metav1.ObjectMeta, _ *corev1.PodSpec, _ *corev1.PodStatus) {
			m.OwnerReferences = make([]metav1.OwnerReference, 2)
		}, "metadata.ownerReferences: Too long"},
		"finalizers": {func(m *metav1.ObjectMeta, _ *corev1.PodSpec, _ *corev1.PodStatus) { m.Finalizers = make([]string, 2) }, "metadata.finalizers: Too long"},
		"managed-fields": {func(m *metav1.ObjectMeta, _ *corev1.PodSpec, _ *corev1.PodStatus) {
			m.ManagedFields = make([]metav1.ManagedFieldsEntry, 2)
		}, "metadata.managedFields: Too long"},
		"spec-bytes": {func(_ *metav1.ObjectMeta, s *corev1.PodSpec, _ *corev1.PodStatus) {
			s.NodeName = strings.Repeat("x", 100)
		}, "spec: Too long"},
		"status-bytes": {func(_ *metav1.ObjectMeta, _ *corev1.PodSpec, s *corev1.PodStatus) {
			s.Message = strings.Repeat("x", 300)
		}, "status: Too long"},
		"status-items": {func(_ *metav1.ObjectMeta, _ *corev1.PodSpec, s *corev1.PodStatus) { s.PodIPs = make([]corev1.PodIP, 4) }, "status: Too long: must have at most 3 elements in its lists and maps, found 4"},
	} {
		t.Run(name, func(t *testing.T) {
			large := parts(test.change)
			errs := limits.Check("pods", large, nil)
			if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), test.want) {
				t.Fatalf("Check() = %v, want one error %q", errs, test.want)
			}
			empty := parts(func(*metav1.ObjectMeta, *corev1.PodSpec, *corev1.PodStatus) {})
			if errs := limits.Check("pods", large, &empty); len(errs) != 1 {
				t.Errorf("Check() of growth = %v, want one error", errs)
			}
			// Objects that were stored before the limit stay usable.
			if errs := limits.Check("pods", large, &large); len(errs) != 0 {
				t.Errorf("Check() of an unchanged object = %v, want none", errs)
			}
			if errs := limits.Check("pods", empty, &large); len(errs) != 0 {
				t.Errorf("Check() of a smaller object = %v, want none", errs)
			}
			if err := limits.Set(name, "1Mi"); err != nil {
				t.Fatal(err)
			}
			if errs := limits.Check("pods", large, nil); len(errs) != 0 {
				t.Errorf("Check() with a raised limit = %v, want none", errs)
			}
		})
	}
	if err := new(ObjectLimits).Set("color", "1"); err == nil {
		t.Error("Set(color) = nil, want an error")
	}
}

func TestParse(t *testing.T) {
	for value, want := range map[string]int64{"0": 0, "20000": 20000, "64Mi": 64 << 20, "1k": 1000} {
		if got, err := Parse(value); err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v, want %d", value, got, err, want)
		}
	}
	for _, value := range []string{"", "-1", "1.5", "100m", "x", "1e30"} {
		if got, err := Parse(value); err == nil {
			t.Errorf("Parse(%q) = %d, want an error", value, got)
		}
	}
}
