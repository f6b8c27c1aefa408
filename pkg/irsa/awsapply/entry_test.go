package awsapply

import (
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

func TestCheckAccessEntries(t *testing.T) {
	fail := func(code string) func(*cloud) error {
		return func(c *cloud) error {
			c.SetFaults(func(fakeaws.Call) fakeaws.Fault { return fakeaws.Error(code) })
			return nil
		}
	}
	mode := func(mode fakeaws.AuthenticationMode) func(*cloud) error {
		return func(c *cloud) error { return c.AddCluster(hub.String(), mode) }
	}
	for name, test := range map[string]struct {
		change  func(*cloud) error
		problem []string // parts of the result; none if the hub supports access entries
		err     string
	}{
		"both":            {mode(fakeaws.ModeAPIAndConfigMap), nil, ""},
		"API":             {mode(fakeaws.ModeAPI), nil, ""},
		"ConfigMap":       {mode(fakeaws.ModeConfigMap), []string{"CONFIG_MAP", "aws eks update-cluster-config --name hub-1", "--eks-auth=ConfigMap"}, ""},
		"denied":          {fail("AccessDeniedException"), nil, "allow eks:DescribeCluster on " + hub.String()},
		"no such cluster": {fail("ResourceNotFoundException"), []string{"there is no EKS cluster " + hub.String(), "--hub-cluster-arn", "--eks-auth=ConfigMap"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, fakeaws.Options{})
			if err := test.change(c); err != nil {
				t.Fatal(err)
			}
			problem, err := c.CheckAccessEntries(c.ctx, hub)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("CheckAccessEntries() = error %v, want an error that contains %q", err, test.err)
			}
			if (problem != "") != (len(test.problem) > 0) {
				t.Errorf("CheckAccessEntries() = %q, want a problem that contains %q", problem, test.problem)
			}
			for _, text := range test.problem {
				if !strings.Contains(problem, text) {
					t.Errorf("CheckAccessEntries() = %q, want a problem that contains %q", problem, text)
				}
			}
			if made := c.made(); len(made) > 0 {
				t.Errorf("writes of CheckAccessEntries() = %v, want none", made)
			}
		})
	}
}
