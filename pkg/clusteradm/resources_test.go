package clusteradm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

func TestResources(t *testing.T) {
	hub := func(args ...string) corev1.ResourceRequirements {
		t.Helper()
		objects := decodeManifests(t, runCommand(t, append([]string{"init", "--output-manifests", "--image=registry.example.com/hub:v1"}, args...)...).done(t).out)
		return deploymentIn(t, objects, manifests.ServerName).Spec.Template.Spec.Containers[0].Resources
	}
	defaults := hub()
	got := hub("--resource-requests=cpu=2,memory=3Gi", "--resource-limits=memory=9Gi")
	if got.Requests.Cpu().String() != "2" || got.Requests.Memory().String() != "3Gi" || got.Limits.Memory().String() != "9Gi" || !got.Limits.Cpu().IsZero() {
		t.Errorf("resources of the server = %v, want requests of 2 and 3Gi, and a limit of 9Gi", got)
	}
	if got := hub("--resource-limits=memory=9Gi"); !got.Requests.Memory().Equal(*defaults.Requests.Memory()) || !got.Requests.Cpu().Equal(*defaults.Requests.Cpu()) {
		t.Errorf("requests of the server with another limit = %v, want those of the manifest, %v", got.Requests, defaults.Requests)
	}
}

func TestResourcesRefused(t *testing.T) {
	for name, test := range map[string]struct{ arg, want string }{
		"no quantity":              {"--resource-limits=memory=much", `--resource-limits: memory "much"`},
		"nothing":                  {"--resource-requests=cpu=0", "--resource-requests: cpu must be more than 0"},
		"another resource":         {"--resource-limits=pods=1", `--resource-limits must be of cpu or memory, not "pods"`},
		"request above the limit":  {"--resource-requests=memory=4Gi --resource-limits=memory=2Gi", "--resource-requests: memory is more than its limit"},
		"no value for the request": {"--resource-requests=memory", "memory must be formatted as key=value"},
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(test.arg)
			runCommand(t, append([]string{"init", "--output-manifests", "--image=registry.example.com/hub:v1"}, args...)...).refused(t, test.want)
			runCommand(t, append([]string{"join", "--hub-token=token", "--hub-apiserver=https://127.0.0.1:1", "--cluster-name=c1", "--image=registry.example.com/agent:v1"}, args...)...).refused(t, test.want)
		})
	}
}
