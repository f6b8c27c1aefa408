package fleetresource

import (
	"fmt"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

func TestObjects(t *testing.T) {
	for _, test := range []struct {
		properties string
		identity   searchv1alpha1.ResourceIdentity
		labels     map[string]string
		created    bool
		status     string
	}{
		{properties: `{}`},
		{
			properties: `{"apigroup":"apps","apiversion":"v1","created":"2026-01-01T00:00:00Z","kind":"Deployment","kind_plural":"deployments",` +
				`"label":{"app":"web","note":"say \"hi\"","number":3},"name":"a\"b","namespace":"shop","status":"Running"}`,
			identity: searchv1alpha1.ResourceIdentity{APIGroup: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "shop", Name: `a"b`},
			labels:   map[string]string{"app": "web", "note": `say "hi"`, "number": "3"}, created: true, status: "Running",
		},
		{properties: `{"created":"yesterday","label":{},"name":"a","status":7}`, identity: searchv1alpha1.ResourceIdentity{Name: "a"}, status: "7"},
		{properties: `{"kind":7,"label":["x"],"name":"a","status":["x"]}`, identity: searchv1alpha1.ResourceIdentity{Name: "a"}},
	} {
		object := newObject(&search.Item{UID: "east/u", Cluster: "east", Version: 5, Object: search.JSON(test.properties)})
		if object.Resource != test.identity || !reflect.DeepEqual(object.Labels, test.labels) || object.CreationTimestamp.IsZero() == test.created ||
			object.Namespace != "east" || object.Name != "u" || object.ResourceVersion != "5" || string(object.Properties.Raw) != test.properties {
			t.Errorf("newObject(%s) = %+v, want identity %+v and labels %v", test.properties, object, test.identity, test.labels)
		}
		rows, err := definition.NewBareTableConvertor(columns).ConvertToTable(t.Context(), object, &metav1.TableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(rows.Rows[0].Cells[4]); got != test.status {
			t.Errorf("status in the row of %s = %q, want %q", test.properties, got, test.status)
		}
	}
}
