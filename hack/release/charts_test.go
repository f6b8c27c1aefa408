package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// helmProgram builds Helm, and returns its path.
var helmProgram = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join(root, ".cache", "release", "helm"))
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", path, "helm.sh/helm/v4/cmd/helm").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building Helm: %w\n%s", err, out)
	}
	return path, nil
})

// helm runs Helm, and returns its output.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), must(helmProgram())(t), args...)
	home := t.TempDir()
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, failure bytes.Buffer
	command.Stdout, command.Stderr = &out, &failure
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, failure.String(), out.String())
	}
	return out.String(), nil
}

// packages writes the charts of a release, and returns their paths by name.
func packages(t *testing.T) map[string]string {
	t.Helper()
	r := testRelease(t)
	if err := r.charts(); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range charts {
		out[c.name] = filepath.Join(r.dist, "charts", c.name+"-1.2.3-test.tgz")
	}
	return out
}

// objectsOf returns the objects in YAML by their identity, without the annotation that only charts have.
func objectsOf(t *testing.T, content string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, document := range strings.Split("\n"+content, "\n---") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object) == 0 {
			continue
		}
		metadata := object["metadata"].(map[string]any)
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			if delete(annotations, kept); len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
		id := identity(object)
		if out[id] != nil {
			t.Errorf("object %s exists twice", id)
		}
		out[id] = object
	}
	return out
}

// TestChartsEqualKustomizations checks that a chart has the same objects as the kustomization with the same settings.
func TestChartsEqualKustomizations(t *testing.T) {
	t.Parallel()
	paths := packages(t)
	r := testRelease(t)
	for name, test := range map[string]struct {
		chart      string
		values     []string
		components []string
		// patches are those of a user of the kustomization with these settings.
		patches []kustomize.Patch
	}{
		"bare hub":          {chart: "hub-apiserver", components: []string{"local-cluster"}},
		"cert-manager":      {chart: "hub-apiserver", values: []string{"servingCertificates=cert-manager"}, components: []string{"cert-manager"}},
		"hub that runs OCM": {chart: "hub-apiserver", values: []string{"existingOCM=true"}, components: []string{"existing-ocm"}},
		"accounts in the spelling of the proposal": {
			chart: "hub-apiserver", values: []string{"proxyAccounts=true", "servingCertificates=cert-manager"}, components: []string{"accounts-in-proxy", "cert-manager"},
		},
		"PostgreSQL": {chart: "hub-apiserver", values: []string{"search.engine=postgres"}, components: []string{"postgres"}},
		"external etcd": {
			chart: "hub-apiserver", values: []string{"search.engine=postgres", "etcd.servers={https://etcd.open-cluster-management-hub.svc:2379}"},
			components: []string{"external-etcd", "postgres"},
		},
		"everything else": {
			chart: "hub-apiserver",
			values: []string{
				"search.engine=none", "etcd.servers={https://a:1,https://b:2}", "servingCertificates=cert-manager", "existingOCM=true",
				"aws.configMap=true", "monitoring=true", "aws.roleARN=arn:aws:iam::123456789012:role/r", "extraArgs={--v=2,--a=\"b\"}", "resources.limits.memory=8Gi",
				"tracing.endpoint=collector:1", "tracing.samplingRatePerMillion=1",
			},
			components: []string{"existing-ocm", "external-etcd", "no-search", "cert-manager", "tracing", "aws-auth", "monitoring"},
			patches: []kustomize.Patch{
				*patch("Deployment", "hub-apiserver", `[{"op": "replace", "path": "/spec/template/spec/containers/0/args/2", "value": "--etcd-servers=https://a:1,https://b:2"},
{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--v=2"}, {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--a=\"b\""},
{"op": "replace", "path": "/spec/template/spec/containers/0/resources/limits/memory", "value": "8Gi"}]`),
				*patch("ServiceAccount", "hub-apiserver", `[{"op": "add", "path": "/metadata/annotations", "value": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/r"}}]`),
				*patch("ConfigMap", "hub-apiserver-tracing", `[{"op": "replace", "path": "/data/tracing.yaml", "value": "# The connection to the collector is not encrypted. One request in a hundred is traced.\napiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: collector:1\nsamplingRatePerMillion: 1\n"}]`),
			},
		},
		"volume": {
			chart: "hub-apiserver", values: []string{"storage.size=20Gi", "storage.className=fast"},
			patches: []kustomize.Patch{*patch("PersistentVolumeClaim", "hub-apiserver", `[{"op": "replace", "path": "/spec/resources/requests/storage", "value": "20Gi"}, {"op": "add", "path": "/spec/storageClassName", "value": "fast"}]`)},
		},
		"snapshots": {
			chart: "hub-apiserver", values: []string{"snapshots.interval=1h", "snapshots.keep=3", "snapshots.size=5Gi"}, components: []string{"backup"},
			patches: []kustomize.Patch{
				*patch("Deployment", "hub-apiserver", `[{"op": "replace", "path": "/spec/template/spec/containers/0/args/5", "value": "--snapshot-interval=1h"}, {"op": "replace", "path": "/spec/template/spec/containers/0/args/7", "value": "--snapshot-keep=3"}]`),
				*patch("PersistentVolumeClaim", "hub-apiserver-snapshots", `[{"op": "replace", "path": "/spec/resources/requests/storage", "value": "5Gi"}]`),
			},
		},
		"traces": {
			chart: "hub-apiserver", values: []string{"tracing.endpoint=opentelemetry-collector.observability.svc:4317"}, components: []string{"tracing"},
		},
		"agent with traces": {
			chart: "hub-agent", values: []string{"clusterName=cluster1", "tracing.endpoint=opentelemetry-collector.observability.svc:4317"}, components: []string{"tracing"},
		},
		"agent": {
			chart: "hub-agent", values: []string{"clusterName=cluster1"},
		},
		"agent with monitoring": {
			chart: "hub-agent", values: []string{"clusterName=cluster2", "monitoring=true", "aws.roleARN=arn:aws:iam::123456789012:role/r", "extraArgs={--v=2}"}, components: []string{"monitoring"},
			patches: []kustomize.Patch{
				*patch("Deployment", "agent", `[{"op": "replace", "path": "/spec/template/spec/containers/0/args/0", "value": "--cluster-name=cluster2"}, {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--v=2"}]`),
				*patch("ServiceAccount", "agent", `[{"op": "add", "path": "/metadata/annotations", "value": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/r"}}]`),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &kustomize.Kustomization{Resources: []string{"deploy/base"}, Patches: test.patches}
			if test.chart == "hub-agent" {
				k.Resources = []string{"agent"}
			}
			for _, component := range test.components {
				k.Components = append(k.Components, strings.TrimSuffix(k.Resources[0], "base")+map[bool]string{true: "components/", false: "/"}[test.chart == "hub-apiserver"]+component)
			}
			k.Patches = append(k.Patches, *patch("Deployment", ".*", `[{"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"}]`))
			k.Images = []kustomize.Image{{Name: "hub-apiserver", NewTag: "v1.2.3-test"}, {Name: "hub-apiserver-agent", NewTag: "v1.2.3-test"}}
			want := ""
			for _, object := range must(r.kustomize(k))(t) {
				want += "---\n" + string(must(yaml.Marshal(object))(t))
			}
			args := []string{"template", "release", paths[test.chart], "--namespace", "default"}
			// A hub that runs OCM does not have the component, whatever this value is.
			if test.chart == "hub-apiserver" && !slices.Contains(test.components, "local-cluster") && !slices.Contains(test.components, "existing-ocm") {
				args = append(args, "--set", "localCluster.enabled=false")
			}
			for _, value := range test.values {
				args = append(args, "--set", value)
			}
			got := must(helm(t, args...))(t)
			if diff := cmp.Diff(objectsOf(t, want), objectsOf(t, got)); diff != "" {
				t.Errorf("objects of the kustomization and of the chart (-kustomization +chart):\n%s", diff)
			}
		})
	}
}

// TestChartsRefuseBadValues checks that errors name the value.
func TestChartsRefuseBadValues(t *testing.T) {
	t.Parallel()
	paths := packages(t)
	for values, want := range map[string]string{
		"hub-apiserver search.engine=sqlite":                                                   "/search/engine",
		"hub-apiserver etcd.servers={https://a:2379}":                                          "search.engine: embedded supports one replica",
		"hub-apiserver search.engine=none,etcd.servers={https://a:2379},snapshots.interval=1h": "snapshots.interval: the server saves",
		"hub-apiserver snapshots.interval=daily":                                               "/snapshots/interval",
		"hub-apiserver serach.engine=none":                                                     "'serach' not allowed",
		"hub-apiserver extraArgs={--registration-auth=aws-irsa}":                               "localCluster.enabled: the agent of the hub requires",
		"hub-apiserver aws.roleARN=role":                                                       "/aws/roleARN",
		"hub-apiserver tracing.endpoint=a b":                                                   "/tracing/endpoint",
		"hub-apiserver tracing.samplingRatePerMillion=-1":                                      "/tracing/samplingRatePerMillion",
		"hub-agent clusterName=":                                                               "/clusterName",
		"hub-agent clusterName=a,extraArgs={v}":                                                "/extraArgs/0",
		"hub-agent clusterName=a,image.pullPolicy=Sometimes":                                   "/image/pullPolicy",
	} {
		chart, value, _ := strings.Cut(values, " ")
		_, err := helm(t, "template", "release", paths[chart], "--set", value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("helm template --set %s: error = %v, want one that contains %q", value, err, want)
		}
	}
}

// TestChartsAreReproducible checks that Helm finds no fault with the packages, and that a second build gives the same bytes.
func TestChartsAreReproducible(t *testing.T) {
	t.Parallel()
	one, two := packages(t), packages(t)
	for name, path := range one {
		if !bytes.Equal(must(os.ReadFile(path))(t), must(os.ReadFile(two[name]))(t)) {
			t.Errorf("packages of %s differ", name)
		}
		if out, err := helm(t, "lint", "--strict", path, "--set", map[string]string{"hub-agent": "clusterName=cluster1", "hub-apiserver": "monitoring=true"}[name]); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		archive := must(gzip.NewReader(bytes.NewReader(must(os.ReadFile(path))(t))))(t)
		if content := must(io.ReadAll(archive))(t); bytes.Contains(content, []byte("EXTRA-ARGS")) || bytes.Contains(content, []byte("AGENT-")) || bytes.Contains(content, []byte("ROLE-ARN")) {
			t.Errorf("package of %s contains a placeholder", name)
		}
	}
}
