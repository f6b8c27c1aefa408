package cmd

import (
	"bytes"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/command"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm"
)

// wholeValues are the types of flags that do not split their values.
var wholeValues = []string{
	"string", "stringArray", "bool", "int", "int32", "int64", "float32", "float64", "duration", "ip", "quantity", "namedCertKey", "Level",
}

// splitValues contains the flags that split their values at commas, with the reason why no part contains a comma.
var splitValues = func() map[string]string {
	flags := map[string]string{}
	for reason, names := range map[string][]string{
		"DNS names":                              {"clusters", "cluster", "clusterset", "controllers", "managed-serviceaccount-reserved-names"},
		"drivers":                                {"registration-auth", "registration-drivers", "enabled-registration-drivers"},
		"URLs of hosts and ports without a path": {"etcd-servers"},
		"groups and resources":                   {"inventory-include", "inventory-exclude"},
		"field names; a part in brackets is refused":                {"feedback-json-paths"},
		"keys and quantities":                                       {"namespace-quota-objects", "namespace-quota-bytes", "object-limits", "write-rates", "resource-requests", "resource-limits"},
		"labels, or tags that IAM accepts":                          {"registration-labels", "aws-resource-tags"},
		"names in the code of Kubernetes":                           {"feature-gates", "runtime-config", "enable-admission-plugins", "disable-admission-plugins", "emulated-version", "min-compatibility-version", "tls-cipher-suites", "tls-curve-preferences", "disabled-metrics", "vmodule"},
		"as in kube-apiserver":                                      {"authorization-always-allow-paths", "etcd-servers-overrides", "requestheader-allowed-names", "requestheader-extra-headers-prefix", "requestheader-group-headers", "requestheader-uid-headers", "requestheader-username-headers", "strict-transport-security-directives", "watch-cache-sizes", "allow-metric-labels"},
		"a part of an expression is refused, since it lacks ^ or $": {"cors-allowed-origins"},
	} {
		for _, name := range names {
			flags[name] = reason
		}
	}
	return flags
}()

// A flag with names of groups or users, regular expressions or ARN patterns must not split its value: these contain
// commas. It has the type stringArray.
func TestFlagsDoNotSplitValuesWithCommas(t *testing.T) {
	var out bytes.Buffer
	unused := map[string]bool{}
	for name := range splitValues {
		unused[name] = true
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		check := func(flag *pflag.Flag) {
			if slices.Contains(wholeValues, flag.Value.Type()) {
				return
			}
			delete(unused, flag.Name)
			if splitValues[flag.Name] == "" {
				t.Errorf("type of --%s of %s = %s, want stringArray, or a reason in splitValues", flag.Name, c.CommandPath(), flag.Value.Type())
			}
		}
		c.LocalFlags().VisitAll(check)
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	for _, program := range []*cobra.Command{command.New(), agent.NewCommand(), clusteradm.New(&out, &out, &out)} {
		walk(program)
	}
	for name := range unused {
		t.Errorf("splitValues contains --%s, which no command splits", name)
	}
}
