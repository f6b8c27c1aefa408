package search

import (
	"bytes"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// TestOrderHasColumns checks that the properties that order a table are shown once.
func TestOrderHasColumns(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	s := &searching{Environment: cli.Environment{IOStreams: streams}, orderBy: []string{"restarts desc", "name", "created", "restarts", "label"}}
	if err := s.table(&searchv1alpha1.SearchResult{Count: 1, Items: []searchv1alpha1.SearchItem{{
		UID: "c1/a", Cluster: "c1", Properties: runtime.RawExtension{Raw: []byte(`{"kind":"Pod","name":"web","restarts":1000000,"label":{"a":"b"}}`)},
	}}}); err != nil {
		t.Fatal(err)
	}
	want := "CLUSTER   KIND   NAMESPACE   NAME   STATUS   AGE         RESTARTS   LABEL\n" +
		`c1        Pod                web             <unknown>   1000000    {"a":"b"}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("table =\n%s\nwant\n%s", got, want)
	}
}

// Clusters can report any text, which must not control the terminal of the user.
func TestOutputCannotControlATerminal(t *testing.T) {
	result := &searchv1alpha1.SearchResult{Count: 1, Items: []searchv1alpha1.SearchItem{{
		UID: "c1/a", Cluster: "c1", Properties: runtime.RawExtension{
			Raw: []byte(`{"kind":"Pod","namespace":"a\tb","name":"\u001b]0;title\u0007web","status":"up\nc2  Pod  forged"}`),
		},
	}}}
	for _, test := range []struct {
		output string
		show   func(*searching) func(*searchv1alpha1.SearchResult) error
		want   string
	}{
		{cli.OutputTable, func(s *searching) func(*searchv1alpha1.SearchResult) error { return s.table },
			"CLUSTER   KIND   NAMESPACE   NAME                STATUS                AGE\n" +
				`c1        Pod    a\tb        \x1b]0;title\aweb   up\nc2  Pod  forged   <unknown>` + "\n"},
		{cli.OutputName, func(s *searching) func(*searchv1alpha1.SearchResult) error { return s.names },
			`c1/a\tb/pod/\x1b]0;title\aweb` + "\n"},
	} {
		t.Run(test.output, func(t *testing.T) {
			streams, _, out, _ := genericiooptions.NewTestIOStreams()
			if err := test.show(&searching{Environment: cli.Environment{IOStreams: streams}})(result); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != test.want || bytes.ContainsAny(out.Bytes(), "\x1b\x07") {
				t.Errorf("output =\n%q\nwant\n%q", got, test.want)
			}
		})
	}
}
