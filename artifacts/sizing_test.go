package artifacts

import (
	"bytes"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// sizes returns the rows of the first table of a section of docs/sizing.md that has the column "memory request", by the
// names of its columns.
func sizes(t *testing.T, section string) []map[string]string {
	t.Helper()
	content, err := os.ReadFile("../docs/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(content), "\n## "+section+"\n")
	if !found {
		t.Fatalf("docs/sizing.md has no section %q", section)
	}
	after, _, _ = strings.Cut(after, "\n## ")
	var columns []string
	var rows []map[string]string
	for line := range strings.Lines(after) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if columns != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case columns == nil && strings.Contains(line, "memory request"):
			columns = cells
		case columns != nil && !strings.HasPrefix(line, "|--"):
			row := map[string]string{}
			for i, cell := range cells {
				row[columns[i]] = cell
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("section %q of docs/sizing.md has no table with the column memory request", section)
	}
	return rows
}

// The manifests and the charts have the sizes of the first row, which docs/sizing.md declares to be the default.
func TestSizes(t *testing.T) {
	for _, program := range []struct{ section, manifest, chart string }{
		{"Choose the size of the server", "deploy/base/deployment.yaml", "hub-apiserver"},
		{"Choose the size of the agent", "agent/deploy.yaml", "hub-agent"},
	} {
		rows := sizes(t, program.section)
		deployment := &appsv1.Deployment{}
		readManifest(t, program.manifest, deployment)
		values := struct {
			Resources corev1.ResourceRequirements `json:"resources"`
			Storage   struct {
				Size string `json:"size"`
			} `json:"storage"`
		}{}
		content, err := os.ReadFile("charts/" + program.chart + "/values.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := utilyaml.Unmarshal(content, &values); err != nil {
			t.Fatal(err)
		}
		for _, at := range []struct {
			name      string
			resources corev1.ResourceRequirements
		}{
			{program.manifest, deployment.Spec.Template.Spec.Containers[0].Resources},
			{"the chart " + program.chart, values.Resources},
		} {
			for column, got := range map[string]*resource.Quantity{
				"CPU request": at.resources.Requests.Cpu(), "memory request": at.resources.Requests.Memory(), "memory limit": at.resources.Limits.Memory(),
			} {
				if want := quantity(t, rows[0][column]); !got.Equal(want) {
					t.Errorf("%s has %s %s, want %s as in docs/sizing.md", at.name, column, got, rows[0][column])
				}
			}
		}
		if volume, ok := rows[0]["volume"]; ok {
			claim := &corev1.PersistentVolumeClaim{}
			readManifest(t, "deploy/base/volume.yaml", claim)
			if got := claim.Spec.Resources.Requests.Storage(); !got.Equal(quantity(t, volume)) || values.Storage.Size != volume {
				t.Errorf("volume of the server is %s, and %s in the chart, want %s as in docs/sizing.md", got, values.Storage.Size, volume)
			}
		}
		for _, row := range rows {
			request, limit := quantity(t, row["memory request"]), quantity(t, row["memory limit"])
			if request.Cmp(limit) > 0 {
				t.Errorf("docs/sizing.md recommends a request of %s with a limit of %s, want a request that is at most the limit", row["memory request"], row["memory limit"])
			}
		}
	}
}

func readManifest(t *testing.T, path string, into any) {
	t.Helper()
	content, err := FS.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func quantity(t *testing.T, text string) resource.Quantity {
	t.Helper()
	parsed, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatalf("quantity %q in docs/sizing.md: %v", text, err)
	}
	return parsed
}
