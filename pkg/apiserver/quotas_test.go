package apiserver

import (
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

// TestEveryRowIsBounded checks that every namespaced resource that clients write has a quota, and that
// every object has limits.
func TestEveryRowIsBounded(t *testing.T) {
	for _, row := range Resources(Dependencies{Quotas: &Quotas{}}) {
		if !row.ClusterScoped && !row.ServerOwned && (row.Quota.Objects <= 0 || row.Quota.Bytes <= 0 || row.Counter == nil) {
			t.Errorf("%s: quota = %+v, want limits of objects and bytes", row.GroupResource(), row.Quota)
		}
		for _, key := range quota.ObjectLimitKeys() {
			var changed quota.ObjectLimits
			if err := changed.Set(key, "1"); err != nil {
				t.Fatal(err)
			}
			if row.Limits == (quota.ObjectLimits{}) || changed.OrDefault() == quota.DefaultObjectLimits {
				t.Errorf("%s: limits = %+v, want a limit of %s", row.GroupResource(), row.Limits, key)
			}
		}
	}
}

func TestQuotaFlags(t *testing.T) {
	q := &Quotas{
		Objects:      map[string]string{"clusternamespaces": "7"},
		Bytes:        map[string]string{"clusternamespaces": "1Mi", "manifestworks": "0"},
		ObjectLimits: map[string]string{"labels": "5", "clusternamespaces.labels": "6", "manifestworks.status-bytes": "0"},
	}
	if errs := q.Validate(); len(errs) != 0 {
		t.Fatal(errs)
	}
	for _, row := range Resources(Dependencies{Quotas: q}) {
		switch row.Name {
		case "clusternamespaces":
			if want := (quota.Limits{Objects: 7, Bytes: 1 << 20}); row.Quota != want || row.Limits.Labels != 6 {
				t.Errorf("clusternamespaces = %+v, %d labels, want %+v, 6 labels", row.Quota, row.Limits.Labels, want)
			}
		case "manifestworks":
			if want := (quota.Limits{Objects: 10_000}); row.Quota != want || row.Limits.Labels != 5 || row.Limits.StatusBytes != 0 {
				t.Errorf("manifestworks = %+v, %+v, want %+v, 5 labels and no limit of the status", row.Quota, row.Limits, want)
			}
		}
	}
	for name, q := range map[string]*Quotas{
		`"pods" is not a resource with a quota`:            {Objects: map[string]string{"pods": "1"}},
		`"managedclusters" is not a resource with a quota`: {Bytes: map[string]string{"managedclusters": "1"}},
		`"-1" must be an integer`:                          {Objects: map[string]string{"manifestworks": "-1"}},
		`unknown object limit "colors"`:                    {ObjectLimits: map[string]string{"colors": "1"}},
		`"pods" is not a resource`:                         {ObjectLimits: map[string]string{"pods.labels": "1"}},
		`"x" must be a quantity`:                           {ObjectLimits: map[string]string{"labels": "x"}},
	} {
		if errs := q.Validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), name) {
			t.Errorf("Validate(%+v) = %v, want %s", q, errs, name)
		}
	}
}
