package work

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
)

// decisions is an Executors that records the requests and returns an error for each of them.
type decisions struct {
	asked []AdmitRequest
	err   func(AdmitRequest) error
}

func (d *decisions) Admit(_ context.Context, request AdmitRequest) (dynamic.Interface, error) {
	d.asked = append(d.asked, request)
	return nil, d.err(request)
}

// admissionPass returns a pass over a ManifestWork with three manifests.
func admissionPass(d *decisions) *pass {
	p := &pass{Controller: &Controller{Config: Config{Executors: d}}, work: newWork(actAs, configMapManifest, configMapManifest, configMapManifest)}
	for i, name := range []string{"a", "b", "c"} {
		p.items = append(p.items, &decide.Item{
			Ordinal: i, GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "shop", Name: name, Object: &unstructured.Unstructured{},
		})
	}
	return p
}

// TestRecheck checks that each refused request is checked without earlier answers, and that one that a
// quota or a webhook has refused costs only the reviews of its own object.
func TestRecheck(t *testing.T) {
	lost, unknown := &Refusal{Message: "lost"}, errors.New("no answer")
	var rights error
	d := &decisions{err: func(AdmitRequest) error { return rights }}
	p := admissionPass(d)
	for _, step := range []struct {
		name   string
		rights error
		counts []int
	}{
		{"a quota refuses the first object", nil, []int{1}},
		{"a quota refuses the second object", nil, []int{1}},
		{"the permission is lost meanwhile", lost, []int{1, 3}},
		{"the permission is unknown", unknown, []int{1}},
	} {
		rights, d.asked = step.rights, nil
		if err := p.recheck(t.Context(), p.items[1]); !errors.Is(err, step.rights) {
			t.Errorf("%s: recheck() = %v, want %v", step.name, err, step.rights)
		}
		if len(d.asked) != len(step.counts) {
			t.Errorf("%s: checks = %d, want %d", step.name, len(d.asked), len(step.counts))
			continue
		}
		for i, asked := range d.asked {
			if len(asked.Targets) != step.counts[i] || !asked.Fresh {
				t.Errorf("%s: check %d has %d objects, fresh %t, want %d, true", step.name, i, len(asked.Targets), asked.Fresh, step.counts[i])
			}
		}
		if d.asked[0].Targets[0].Name != "b" {
			t.Errorf("%s: first checked object = %s, want b", step.name, d.asked[0].Targets[0].Name)
		}
	}
}

// TestMayWrite checks that nothing is written, and that the pass ends, unless the permissions were checked
// in this pass.
func TestMayWrite(t *testing.T) {
	unknown := errors.New("no answer")
	d := &decisions{err: func(AdmitRequest) error { return unknown }}
	p := admissionPass(d)
	if err := p.mayWrite(t.Context()); !errors.Is(err, unknown) || !errors.Is(p.denied, unknown) || p.writing {
		t.Errorf("mayWrite() = %v, the pass ends with %v, writing = %t, want %v twice and false", err, p.denied, p.writing, unknown)
	}
	d.err = func(AdmitRequest) error { return nil }
	p = admissionPass(d)
	for range 2 {
		if err := p.mayWrite(t.Context()); err != nil || p.denied != nil || !p.writing {
			t.Errorf("mayWrite() = %v, the pass ends with %v, writing = %t, want nil, nil and true", err, p.denied, p.writing)
		}
	}
	if len(d.asked) != 2 {
		t.Errorf("checks = %d, want one for each pass", len(d.asked))
	}
}

// TestRetryChecksPermissionsInTime checks that the permissions of an executor are checked in time although a
// manifest that fails is retried later.
func TestRetryChecksPermissionsInTime(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		until       time.Time
		delay, want time.Duration
	}{
		"no executor":          {time.Time{}, lastRetry, lastRetry},
		"the retry is earlier": {now.Add(20 * time.Second), time.Second, time.Second},
		"the check is earlier": {now.Add(20 * time.Second), lastRetry, 20 * time.Second},
		"the check is due":     {now.Add(-time.Minute), lastRetry, firstRetry},
		"both are due":         {now.Add(-time.Minute), time.Millisecond, time.Millisecond},
	} {
		c := &Controller{now: func() time.Time { return now }}
		st := c.states.get(testKey)
		st.admitted.until = test.until
		if got := c.retry(testKey, nil, test.delay); got != test.want || !st.notBefore.Equal(now.Add(test.delay)) {
			t.Errorf("%s: retry(%s) = %s, failed manifests after %s, want %s and %s", name, test.delay, got, st.notBefore.Sub(now), test.want, test.delay)
		}
	}
}
