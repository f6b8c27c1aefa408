package manifestwork

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func TestKeepStoredJSON(t *testing.T) {
	for name, test := range map[string]struct {
		stored, written string
		same            bool
	}{
		"the same text":             {`{"a":1}`, `{"a":1}`, true},
		"another order of keys":     {`{"b":{"d":1,"c":2},"a":1}`, `{"a":1,"b":{"c":2,"d":1}}`, true},
		"another escape of a value": {`{"a":"\u003c"}`, `{ "a": "<" }`, true},
		"another value":             {`{"a":1}`, `{"a":2}`, false},
		"another type":              {`{"a":1}`, `{"a":"1"}`, false},
		"an additional key":         {`{"a":1}`, `{"a":1,"b":null}`, false},
		"a missing key":             {`{"a":1,"b":null}`, `{"a":1}`, false},
		"null for an empty list":    {`{"a":[]}`, `{"a":null}`, false},
		"another order of a list":   {`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		"large numbers":             {`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		"a duplicate key":           {`{"a":1}`, `{"a":1,"a":2}`, false},
		"trailing data":             {`{"a":1}`, `{"a":1}{"b":2}`, false},
		"not JSON":                  {`{"a":1}`, `{`, false},
		"empty text":                {`{"a":1}`, ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(text string) *work.ManifestWork {
				w := &work.ManifestWork{}
				w.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(text)}}}
				return w
			}
			w, old := with(test.written), with(test.stored)
			keepStoredJSON(w, old)
			want := test.written
			if test.same {
				want = test.stored
			}
			if got := string(w.Spec.Workload.Manifests[0].Raw); got != want {
				t.Errorf("keepStoredJSON(%s, %s) = %s, want %s", test.written, test.stored, got, want)
			}
			// The number of manifests may change.
			keepStoredJSON(w, &work.ManifestWork{})
			keepStoredJSON(&work.ManifestWork{}, old)
		})
	}
}
