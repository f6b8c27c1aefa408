package awsapply

import (
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

func TestCheckAccessEntries(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*cloud) error
		problem []string // parts of the result; none if the hub supports access entries
		err     string
	}{
		"both": {func(c *cloud) error { return c.AddCluster(hub.String(), fakeaws.ModeAPIAndConfigMap) }, nil, ""},
		"API":  {func(c *cloud) error { return c.AddCluster(hub.String(), fakeaws.ModeAPI) }, nil, ""},
		"ConfigMap": {
			func(c *cloud) error { return c.AddCluster(hub.String(), fakeaws.ModeConfigMap) },
			[]string{"CONFIG_MAP", "aws eks update-cluster-config --name hub-1", "--eks-auth=ConfigMap"}, "",
		},
		"not EKS": {
			func(c *cloud) error { c.hub.ClusterName = "hub-2"; return nil },
			nil, "eks:DescribeCluster",
		},
		"denied": {
			func(c *cloud) error {
				c.SetFaults(func(fakeaws.Call) fakeaws.Fault { return fakeaws.Error("AccessDeniedException") })
				return nil
			},
			nil, "allow eks:DescribeCluster on " + hub.String(),
		},
		"no such cluster": {
			func(c *cloud) error {
				c.SetFaults(func(fakeaws.Call) fakeaws.Fault { return fakeaws.Error("ResourceNotFoundException") })
				return nil
			},
			[]string{"there is no EKS cluster " + hub.String(), "--hub-cluster-arn", "--eks-auth=ConfigMap"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, fakeaws.Options{})
			if err := test.change(c); err != nil {
				t.Fatal(err)
			}
			problem, err := c.CheckAccessEntries(c.ctx)
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
