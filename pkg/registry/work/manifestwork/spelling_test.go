package manifestwork

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
)

func TestKeepSpelling(t *testing.T) {
	for name, test := range map[string]struct {
		stored, written string
		same            bool
	}{
		"the same text":                          {`{"a":1}`, `{"a":1}`, true},
		"another order of keys":                  {`{"b":{"d":1,"c":2},"a":1}`, `{"a":1,"b":{"c":2,"d":1}}`, true},
		"another spelling of a value":            {`{"a":"\u003c"}`, `{ "a": "<" }`, true},
		"another value":                          {`{"a":1}`, `{"a":2}`, false},
		"another type":                           {`{"a":1}`, `{"a":"1"}`, false},
		"a key more":                             {`{"a":1}`, `{"a":1,"b":null}`, false},
		"a key less":                             {`{"a":1,"b":null}`, `{"a":1}`, false},
		"null for nothing":                       {`{"a":[]}`, `{"a":null}`, false},
		"another order of a list":                {`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		"large numbers":                          {`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		"the value of a key that is there twice": {`{"a":1}`, `{"a":1,"a":2}`, false},
		"something behind it":                    {`{"a":1}`, `{"a":1}{"b":2}`, false},
		"no JSON":                                {`{"a":1}`, `{`, false},
		"nothing":                                {`{"a":1}`, ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(text string) *work.ManifestWork {
				w := &work.ManifestWork{}
				w.Spec.Workload.Manifests = []work.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(text)}}}
				return w
			}
			w, old := with(test.written), with(test.stored)
			keepSpelling(w, old)
			want := test.written
			if test.same {
				want = test.stored
			}
			if got := string(w.Spec.Workload.Manifests[0].Raw); got != want {
				t.Errorf("stored %s, written %s, kept %s", test.stored, test.written, got)
			}
			// More or fewer manifests than before are no reason to fail.
			keepSpelling(w, &work.ManifestWork{})
			keepSpelling(&work.ManifestWork{}, old)
		})
	}
}
