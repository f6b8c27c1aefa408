package inventory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		file   string
		change func(*Options)
		err    string
	}{
		"defaults":              {},
		"all fields":            {file: "{include: ['*/*'], exclude: [leases], annotations: true, namespaces: {include: [a-*], exclude: [b]}, resources: [{resource: a/b, conditions: true, fields: [{name: x, path: .spec.x}]}]}"},
		"unknown field":         {file: "{includes: [pods]}", err: "includes"},
		"pattern":               {file: "{exclude: ['[']}", err: "syntax error"},
		"namespace pattern":     {file: "{namespaces: {include: ['[']}}", err: "namespaces.include"},
		"flag":                  {change: func(o *Options) { o.Include = []string{"a/b/c"} }, err: "not group/resource"},
		"empty flag":            {change: func(o *Options) { o.Exclude = []string{"apps/"} }, err: "not group/resource"},
		"fields of a Secret":    {file: "{resources: [{resource: secrets, fields: [{name: x, path: .data.x}]}]}", err: "never read whole"},
		"fields of a ConfigMap": {file: "{resources: [{resource: core/configmaps}]}", err: "never read whole"},
		"fields with wildcard":  {file: "{resources: [{resource: apps/*}]}", err: "must name one"},
		"twice":                 {file: "{resources: [{resource: a/b}, {resource: a/b}]}", err: "twice"},
		"reserved property":     {file: "{resources: [{resource: a/b, fields: [{name: kind, path: .x}]}]}", err: "has a meaning"},
		"bad path":              {file: "{resources: [{resource: a/b, fields: [{name: x, path: '.x[' }]}]}", err: "path"},
		"no path":               {file: "{resources: [{resource: a/b, fields: [{name: x}]}]}", err: "path is missing"},
		"no such file":          {change: func(o *Options) { o.ConfigFile = "absent.yaml" }, err: "absent.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			options := NewOptions()
			if test.file != "" {
				options.ConfigFile = filepath.Join(t.TempDir(), "inventory.yaml")
				if err := os.WriteFile(options.ConfigFile, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.change != nil {
				test.change(options)
			}
			settings, err := options.Settings()
			switch {
			case test.err == "" && (err != nil || settings == nil):
				t.Errorf("Settings() = %v, %v, want settings without an error", settings, err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("Settings() error = %v, want an error that contains %q", err, test.err)
			}
		})
	}
	if settings, err := (&Options{}).Settings(); settings != nil || err != nil {
		t.Errorf("Settings() of a disabled inventory = %v, %v, want nil", settings, err)
	}
}

func TestReports(t *testing.T) {
	for _, test := range []struct {
		name             string
		include, exclude []string
		group, resource  string
		want             bool
	}{
		{"by default", nil, nil, "apps", "deployments", true},
		{"a custom resource", nil, nil, "example.com", "events", true},
		{"events", nil, nil, "", "events", false},
		{"new events", nil, nil, "events.k8s.io", "events", false},
		{"events, even if included", []string{"*/*"}, nil, "", "events", false},
		{"views", nil, nil, "search.open-cluster-management.io", "fleetresources", false},
		{"tokens", nil, nil, "oauth.openshift.io", "oauthaccesstokens", false},
		{"included", []string{"apps/*"}, nil, "apps", "deployments", true},
		{"not included", []string{"apps/*"}, nil, "", "pods", false},
		{"included in the core group", []string{"pods"}, nil, "", "pods", true},
		{"included in another group", []string{"pods"}, nil, "metrics.example.com", "pods", false},
		{"the core group by name", []string{"core/pods"}, nil, "", "pods", true},
		{"excluded", nil, []string{"*/deployments"}, "apps", "deployments", false},
		{"included and excluded", []string{"apps/*"}, []string{"apps/deployments"}, "apps", "deployments", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings, err := (&Configuration{Include: test.include, Exclude: test.exclude}).Settings()
			if err != nil {
				t.Fatal(err)
			}
			if got := settings.reports(schema.GroupResource{Group: test.group, Resource: test.resource}); got != test.want {
				t.Errorf("reports(%s/%s) = %t, want %t", test.group, test.resource, got, test.want)
			}
		})
	}
}
