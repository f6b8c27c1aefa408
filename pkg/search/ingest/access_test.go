package ingest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

func TestDecodeAccess(t *testing.T) {
	rbac := func(kind, more string) string {
		return fmt.Sprintf(`{"uid":"c1/a","kind":%q,"properties":{"name":"a","apigroup":"rbac.authorization.k8s.io",%s}}`, kind, more)
	}
	text := func(size int) string {
		quoted, _ := json.Marshal(strings.Repeat(`"`, size))
		return string(quoted)
	}
	for _, test := range []struct {
		name, resource string
		// internal is the wanted JSON of the internal properties. problem is a part of the wanted reason, if the resource
		// is rejected.
		internal, problem string
	}{
		{name: "rules of a role", resource: rbac("Role", `"_rules":"[]"`), internal: `{"_rules":"[]"}`},
		{name: "content of a binding", resource: rbac("ClusterRoleBinding", `"_roleRef":"{}","_subjects":"[]"`), internal: `{"_roleRef":"{}","_subjects":"[]"}`},
		{name: "rules of a binding are dropped", resource: rbac("RoleBinding", `"_rules":"[]","_subjects":"[]"`), internal: `{"_subjects":"[]"}`},
		{name: "rules of another kind are dropped", resource: rbac("Pod", `"_rules":"[]"`), internal: `{}`},
		{name: "rules of another group are dropped", resource: `{"uid":"c1/a","kind":"Role","properties":{"name":"a","_rules":"[]"}}`, internal: `{}`},
		{name: "an AccessReport with another UID is dropped", resource: rbac("AccessReport", `"_access":"{}"`), internal: `{}`},
		{
			name:     "the AccessReport",
			resource: `{"uid":"c1/access-report","kind":"AccessReport","properties":{"name":"a","_access":"{}"}}`, internal: `{"_access":"{}"}`,
		},
		{name: "rules that are a list", resource: rbac("Role", `"_rules":["a"]`), problem: "property _rules must be a string"},
		{name: "rules that are a number", resource: rbac("Role", `"_rules":1`), problem: "property _rules must be a string"},
		{
			name: "the longest rules", resource: rbac("Role", `"_rules":`+text(inventory.MaxAccessBytes)),
			internal: `{"_rules":` + text(inventory.MaxAccessBytes) + `}`,
		},
		{name: "rules that are too long", resource: rbac("Role", `"_rules":`+text(inventory.MaxAccessBytes+1)), problem: "longer than"},
		{name: "other properties do not use the space", resource: rbac("Role", `"x":`+text(64<<10)+`,"_rules":"[]"`), problem: "longer than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			report, response, err := Decode(strings.NewReader(`{"addResources":[`+test.resource+`]}`), "c1", false, false, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if test.problem != "" {
				if len(report.Put) > 0 || len(response.AddErrors) != 1 || !strings.Contains(response.AddErrors[0].Message, test.problem) {
					t.Errorf("Decode() = %d resources and errors %v, want an error with %q", len(report.Put), response.AddErrors, test.problem)
				}
				return
			}
			if len(report.Put) != 1 {
				t.Fatalf("Decode() = %d resources and errors %v, want 1 resource", len(report.Put), response.AddErrors)
			}
			if got := string(report.Put[0].Internal.AppendJSON(nil)); got != test.internal {
				t.Errorf("internal properties = %.200s, want %.200s", got, test.internal)
			}
			if public := string(report.Put[0].Properties.AppendJSON(nil)); strings.Contains(public, `"_`) {
				t.Errorf("properties = %.200s, want no internal ones", public)
			}
		})
	}
}
