package artifacts

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// The limit of the Go runtime follows the memory limit of the container, and stays below it.
func TestMemoryLimits(t *testing.T) {
	for _, path := range []string{"agent/deploy.yaml", "deploy/base/deployment.yaml"} {
		content, err := FS.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		deployment := &appsv1.Deployment{}
		if err := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096).Decode(deployment); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, container := range deployment.Spec.Template.Spec.Containers {
			limit, request := container.Resources.Limits.Memory(), container.Resources.Requests.Memory()
			if request.IsZero() || limit.Cmp(*request) < 0 {
				t.Errorf("%s: container %s has memory request %s and limit %s, want a request that is at most the limit", path, container.Name, request, limit)
			}
			env := map[string]corev1.EnvVar{}
			for _, variable := range container.Env {
				env[variable.Name] = variable
			}
			source := env["MEMORY_LIMIT_MI"].ValueFrom
			if source == nil || source.ResourceFieldRef == nil || source.ResourceFieldRef.Resource != "limits.memory" || source.ResourceFieldRef.Divisor.String() != "1Mi" {
				t.Fatalf("%s: container %s has MEMORY_LIMIT_MI = %v, want limits.memory in Mi", path, container.Name, source)
			}
			// As the kubelet expands it.
			value := strings.ReplaceAll(env["GOMEMLIMIT"].Value, "$(MEMORY_LIMIT_MI)", strconv.FormatInt(limit.Value()>>20, 10))
			got, err := strconv.ParseInt(strings.TrimSuffix(value, "B"), 10, 64)
			if err != nil || got < limit.Value()*9/10 || got >= limit.Value()*96/100 {
				t.Errorf("%s: container %s has GOMEMLIMIT = %s, want 90 to 96 %% of %d bytes", path, container.Name, value, limit.Value())
			}
		}
	}
}
