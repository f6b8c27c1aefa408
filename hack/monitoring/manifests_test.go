// Package monitoring tests the alerts and dashboards of artifacts with the query engine of Prometheus, on the metrics
// of real servers.
package monitoring

import (
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	serverBase      = "deploy/base"
	serverComponent = "deploy/components/monitoring"
	agentBase       = "agent"
	agentComponent  = "agent/monitoring"
)

// manifests are the objects of a monitoring component.
type manifests struct {
	objects []*unstructured.Unstructured
	rules   monitoringv1.PrometheusRule
	// panels are the expressions of the dashboard, by the title of the panel.
	panels map[string][]string
}

// load builds a component on its base. Fields that prometheus-operator does not know fail the test.
func load(t *testing.T, base, component string) *manifests {
	t.Helper()
	// Kustomize accepts no absolute paths.
	dir := t.TempDir()
	root := framework.Must(filepath.Rel(dir, filepath.Join(localhub.Root(), "artifacts")))(t)
	content := framework.Must(yaml.Marshal(map[string]any{
		"resources": []string{filepath.Join(root, base)}, "components": []string{filepath.Join(root, component)},
	}))(t)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	built := framework.Must(krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir))(t)
	m := &manifests{panels: map[string][]string{}}
	monitors := 0
	for _, resource := range built.Resources() {
		content := framework.Must(resource.AsYAML())(t)
		object := &unstructured.Unstructured{}
		strictly(t, content, &object.Object)
		m.objects = append(m.objects, object)
		switch object.GetKind() {
		case monitoringv1.PrometheusRuleKind:
			strictly(t, content, &m.rules)
		case monitoringv1.ServiceMonitorsKind:
			strictly(t, content, &monitoringv1.ServiceMonitor{})
			monitors++
		case monitoringv1.PodMonitorsKind:
			strictly(t, content, &monitoringv1.PodMonitor{})
			monitors++
		case "ConfigMap":
			if object.GetLabels()["grafana_dashboard"] != "1" {
				continue
			}
			data, _, _ := unstructured.NestedStringMap(object.Object, "data")
			for _, text := range data {
				m.readDashboard(t, text)
			}
		}
	}
	if monitors != 1 || len(m.rules.Spec.Groups) == 0 || len(m.panels) == 0 {
		t.Fatalf("%s: monitors, groups of rules and panels = %d, %d, %d, want 1 and at least 1 of the others",
			component, monitors, len(m.rules.Spec.Groups), len(m.panels))
	}
	return m
}

func strictly(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatalf("decode into %T: %v\n%s", into, err, content)
	}
}

func (m *manifests) readDashboard(t *testing.T, text string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		if panel.Type == "row" {
			continue
		}
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q has no query, want one", panel.Title)
		}
		for _, target := range panel.Targets {
			m.panels[panel.Title] = append(m.panels[panel.Title], target.Expr)
		}
	}
}

// ruleFile writes the rules as a file of Prometheus, and returns its path.
func (m *manifests) ruleFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), m.rules.Name+".yaml")
	if err := os.WriteFile(path, framework.Must(yaml.Marshal(m.rules.Spec))(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// alerts returns the alerts by name.
func (m *manifests) alerts() map[string]monitoringv1.Rule {
	found := map[string]monitoringv1.Rule{}
	for _, group := range m.rules.Spec.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				found[rule.Alert] = rule
			}
		}
	}
	return found
}

// expressions returns the expressions of the rules and of the dashboard, by the name of their rule or panel.
func (m *manifests) expressions() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, group := range m.rules.Spec.Groups {
			for _, rule := range group.Rules {
				if !yield(rule.Alert+rule.Record, rule.Expr.String()) {
					return
				}
			}
		}
		for title, expressions := range m.panels {
			for _, expression := range expressions {
				if !yield(title, expression) {
					return
				}
			}
		}
	}
}

var (
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	heading     = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	row         = regexp.MustCompile("(?m)^\\| `(Hub[A-Za-z]+)` \\|")
)

// docs is the URL of the documents of the branch main, which a release replaces by that of its own.
const docs = "https://github.com/open-cluster-management-io/hub-apiserver/blob/main/docs/"

// TestAnnotations checks that each alert has a severity, says what to do, and names a section of the documents.
// The table in docs/monitoring.md lists each alert.
func TestAnnotations(t *testing.T) {
	alerts := (load(t, serverBase, serverComponent)).alerts()
	for name, alert := range load(t, agentBase, agentComponent).alerts() {
		alerts[name] = alert
	}
	for name, alert := range alerts {
		for _, annotation := range []string{"summary", "description", "runbook_url"} {
			if alert.Annotations[annotation] == "" {
				t.Errorf("alert %s: annotation %s is empty, want a text", name, annotation)
			}
		}
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("alert %s: severity = %q, want critical or warning", name, severity)
		}
		file, anchor, _ := strings.Cut(strings.TrimPrefix(alert.Annotations["runbook_url"], docs), "#")
		text := framework.Must(os.ReadFile(filepath.Join(localhub.Root(), "docs", file)))(t)
		found := false
		for _, match := range heading.FindAllStringSubmatch(string(text), -1) {
			title := notInAnchor.ReplaceAllString(strings.ToLower(match[1]), "")
			found = found || strings.ReplaceAll(title, " ", "-") == anchor
		}
		if !found {
			t.Errorf("alert %s: runbook_url = %s, want an anchor of a heading", name, alert.Annotations["runbook_url"])
		}
	}
	documented := map[string]bool{}
	for _, match := range row.FindAllStringSubmatch(string(framework.Must(os.ReadFile(filepath.Join(localhub.Root(), "docs", "monitoring.md")))(t)), -1) {
		documented[match[1]] = true
		if _, ok := alerts[match[1]]; !ok {
			t.Errorf("docs/monitoring.md lists the alert %s, which does not exist", match[1])
		}
	}
	for name := range alerts {
		if !documented[name] {
			t.Errorf("docs/monitoring.md does not list the alert %s, want a row", name)
		}
	}
}

// TestRulesParse checks the rules as Prometheus loads them.
func TestRulesParse(t *testing.T) {
	for component, base := range map[string]string{serverComponent: serverBase, agentComponent: agentBase} {
		_, errs := rulefmt.ParseFile(load(t, base, component).ruleFile(t), false, model.UTF8Validation, newParser(), promslog.NewNopLogger())
		for _, err := range errs {
			t.Errorf("%s: %v", component, err)
		}
	}
}
