package imports_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/registry/migration/imports"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

// TestRefusals checks when an object is not imported: while the hub forwards its version to the server, while the
// controllers of the server may run, and if only the server creates objects of its kind.
func TestRefusals(t *testing.T) {
	const object = `{"apiVersion":"addon.open-cluster-management.io/v1beta1","kind":"ManagedClusterAddOn",
		"metadata":{"name":"a","namespace":"cluster1","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z"}}`
	for name, test := range map[string]struct {
		serverOwned, forwarded, running, adopt, dryRun bool
		code                                           int32
	}{
		"free":                                {},
		"forwarded":                           {forwarded: true, code: http.StatusConflict},
		"forwarded, adopted":                  {forwarded: true, adopt: true},
		"controllers run":                     {running: true, code: http.StatusConflict},
		"controllers run, adopted":            {running: true, adopt: true, code: http.StatusConflict},
		"controllers run, a check":            {running: true, dryRun: true, code: http.StatusConflict},
		"controllers run, a check of adopted": {running: true, adopt: true, dryRun: true},
		"owned by the server":                 {serverOwned: true, code: http.StatusUnprocessableEntity},
		"owned by the server, adopted":        {serverOwned: true, adopt: true},
	} {
		t.Run(name, func(t *testing.T) {
			row := definition.Resource{
				Name: "managedclusteraddons", Singular: "managedclusteraddon", Kind: "ManagedClusterAddOn",
				Versions: []schema.GroupVersion{v1beta1.SchemeGroupVersion}, ServerOwned: test.serverOwned,
				Strategy: &definition.Strategy[*addon.ManagedClusterAddOn]{
					Rules: validate.Rules[*addon.ManagedClusterAddOn]{Name: apivalidation.NameIsDNSSubdomain},
				},
			}
			stores := imports.NewStores(
				func(context.Context, schema.GroupVersion) (bool, error) { return test.forwarded, nil },
				func(context.Context) (bool, error) { return !test.running, nil })
			stores.Add(&row)
			registrytest.StartDatabase(t).Serve(t, nil, row)
			request := &migrationv1alpha1.Import{Spec: migrationv1alpha1.ImportSpec{Object: &runtime.RawExtension{Raw: []byte(object)}, Adopt: test.adopt}}
			options := &metav1.CreateOptions{}
			if test.dryRun {
				options.DryRun = []string{metav1.DryRunAll}
			}
			_, err := imports.NewREST(stores).Create(t.Context(), request, rest.ValidateAllObjectFunc, options)
			var got int32
			if err != nil {
				got = apierrors.NewInternalError(err).ErrStatus.Code
			}
			var status apierrors.APIStatus
			if errors.As(err, &status) {
				got = status.Status().Code
			}
			if got != test.code {
				t.Errorf("Create() = %v, want code %d", err, test.code)
			}
		})
	}
}
