package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"
)

// chart is a Helm chart. Its templates are compiled from the kustomizations, so that both give the same objects. Its
// other files are in artifacts/charts.
type chart struct {
	name string
	// resources are kustomizations and files of artifacts.
	resources []string
	// options are the parts that values of the chart select.
	options []option
	// settings are patches that insert placeholders, and fill contains pairs of a placeholder and its template.
	settings []kustomize.Patch
	fill     []string
}

// option is a component, or a patch, that applies if a template expression is true.
type option struct {
	condition string
	component string
	patch     *kustomize.Patch
	// excludes is true if the option and the one before it exclude each other.
	excludes bool
	// alone is true if the option changes other places than all other options.
	alone bool
}

const (
	// kubeVersion are the versions of Kubernetes that `make test-skew` tests.
	kubeVersion   = ">=1.35.0-0"
	containerPath = "/spec/template/spec/containers/0"
)

// kept is the annotation with which Helm does not delete an object: the data of the hub, the records of what an agent
// has applied, and the namespaces of both.
const kept = "helm.sh/resource-policy"

var charts = []*chart{
	{
		name:      "hub-apiserver",
		resources: []string{"deploy/base"},
		options: []option{
			// First: others change its APIService.
			{condition: ".Values.proxyAccounts", component: "deploy/components/accounts-in-proxy"},
			{condition: ".Values.existingOCM", component: "deploy/components/existing-ocm"},
			{condition: "and .Values.localCluster.enabled (not .Values.existingOCM)", component: "deploy/components/local-cluster", excludes: true},
			{condition: ".Values.snapshots.interval", component: "deploy/components/backup"},
			{condition: ".Values.etcd.servers", component: "deploy/components/external-etcd", excludes: true},
			{condition: `eq .Values.search.engine "postgres"`, component: "deploy/components/postgres"},
			{condition: `eq .Values.search.engine "none"`, component: "deploy/components/no-search", excludes: true},
			{condition: `eq .Values.servingCertificates "cert-manager"`, component: "deploy/components/cert-manager"},
			{condition: ".Values.tracing.endpoint", component: "deploy/components/tracing"},
			{condition: ".Values.aws.configMap", component: "deploy/components/aws-auth", alone: true},
			{condition: ".Values.monitoring", component: "deploy/components/monitoring", alone: true},
			{condition: ".Values.aws.roleARN", patch: patch("ServiceAccount", "hub-apiserver", `[{"op": "add", "path": "/metadata/annotations", "value": {"eks.amazonaws.com/role-arn": "ROLE-ARN"}}]`), alone: true},
			{condition: ".Values.storage.className", patch: patch("PersistentVolumeClaim", "hub-apiserver", `[{"op": "add", "path": "/spec/storageClassName", "value": "STORAGE-CLASS"}]`), alone: true},
		},
		settings: slices.Concat(keepObjects, containerSettings("hub-apiserver"), []kustomize.Patch{
			*patch("Deployment", "agent", fmt.Sprintf(`[{"op": "replace", "path": "%[1]s/image", "value": "AGENT-IMAGE"}, {"op": "add", "path": "%[1]s/imagePullPolicy", "value": "PULL-POLICY"}, {"op": "replace", "path": "%[1]s/resources", "value": "AGENT-RESOURCES"}, {"op": "add", "path": "%[1]s/args/-", "value": "AGENT-ARGS"}]`, containerPath)),
			*patch("PersistentVolumeClaim", "hub-apiserver", `[{"op": "replace", "path": "/spec/resources/requests/storage", "value": "STORAGE-SIZE"}]`),
			*patch("PersistentVolumeClaim", "hub-apiserver-snapshots", `[{"op": "replace", "path": "/spec/resources/requests/storage", "value": "SNAPSHOT-SIZE"}]`),
		}),
		fill: slices.Concat([]string{
			"--etcd-servers=https://etcd.open-cluster-management-hub.svc:2379", `{{ print "--etcd-servers=" (join "," .Values.etcd.servers) | quote }}`,
			"endpoint: opentelemetry-collector.observability.svc:4317", "endpoint: {{ .Values.tracing.endpoint }}",
			"samplingRatePerMillion: 10000", "samplingRatePerMillion: {{ int .Values.tracing.samplingRatePerMillion }}",
			"--snapshot-interval=6h", `{{ print "--snapshot-interval=" .Values.snapshots.interval | quote }}`,
			"--snapshot-keep=14", `{{ print "--snapshot-keep=" (int .Values.snapshots.keep) | quote }}`,
			"AGENT-IMAGE", `{{ print .Values.localCluster.image.repository ":" (.Values.localCluster.image.tag | default .Chart.AppVersion) | quote }}`,
			"AGENT-RESOURCES", "{{ toJson .Values.localCluster.resources }}",
			"- AGENT-ARGS", "{{- range .Values.localCluster.extraArgs }}\n        - {{ . | quote }}\n        {{- end }}",
			"SNAPSHOT-SIZE", "{{ .Values.snapshots.size | quote }}",
			"STORAGE-SIZE", "{{ .Values.storage.size | quote }}",
			"STORAGE-CLASS", "{{ .Values.storage.className | quote }}",
			"ROLE-ARN", "{{ .Values.aws.roleARN | quote }}",
		}, containerFill),
	},
	{
		name:      "hub-agent",
		resources: []string{"agent"},
		options: []option{
			{condition: ".Values.tracing.endpoint", component: "agent/tracing", alone: true},
			{condition: ".Values.monitoring", component: "agent/monitoring", alone: true},
			{condition: ".Values.aws.roleARN", patch: patch("ServiceAccount", "agent", `[{"op": "add", "path": "/metadata/annotations", "value": {"eks.amazonaws.com/role-arn": "ROLE-ARN"}}]`), alone: true},
		},
		settings: slices.Concat(keepObjects, containerSettings("agent")),
		fill: slices.Concat(containerFill, []string{
			"--cluster-name=cluster1", `{{ print "--cluster-name=" .Values.clusterName | quote }}`,
			"endpoint: opentelemetry-collector.observability.svc:4317", "endpoint: {{ .Values.tracing.endpoint }}",
			"ROLE-ARN", "{{ .Values.aws.roleARN | quote }}",
		}),
	},
}

var keepObjects = []kustomize.Patch{keep("Namespace"), keep("PersistentVolumeClaim"), keep("CustomResourceDefinition")}

func keep(kind string) kustomize.Patch {
	return kustomize.Patch{
		Patch:  fmt.Sprintf(`{"apiVersion": "v1", "kind": %q, "metadata": {"name": "any", "annotations": {%q: "keep"}}}`, kind, kept),
		Target: &kustomize.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: kind}}},
	}
}

func patch(kind, name, operations string) *kustomize.Patch {
	return &kustomize.Patch{Patch: operations, Target: &kustomize.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: kind}, Name: name}}}
}

// containerSettings are the settings that both charts have for their container.
func containerSettings(deployment string) []kustomize.Patch {
	operations := fmt.Sprintf(`[{"op": "replace", "path": "%[1]s/image", "value": "IMAGE"}, {"op": "add", "path": "%[1]s/imagePullPolicy", "value": "PULL-POLICY"},
{"op": "replace", "path": "%[1]s/resources", "value": "RESOURCES"}, {"op": "add", "path": "%[1]s/args/-", "value": "EXTRA-ARGS"}]`, containerPath)
	return []kustomize.Patch{*patch("Deployment", deployment, operations)}
}

var containerFill = []string{
	"IMAGE", `{{ print .Values.image.repository ":" (.Values.image.tag | default .Chart.AppVersion) | quote }}`,
	"PULL-POLICY", "{{ .Values.image.pullPolicy }}",
	"RESOURCES", "{{ toJson .Values.resources }}",
	"- EXTRA-ARGS", "{{- range .Values.extraArgs }}\n        - {{ . | quote }}\n        {{- end }}",
}

// charts writes the packages of all charts.
func (r *release) charts() error {
	for _, c := range charts {
		files, err := r.chartFiles(c)
		if err != nil {
			return fmt.Errorf("chart %s: %w", c.name, err)
		}
		out := filepath.Join(r.dist, "charts", c.name+"-"+r.chartVersion()+".tgz")
		if err := create(out, func(w io.Writer) error {
			compressed := gzip.NewWriter(w)
			if err := r.tar(compressed, files); err != nil {
				return err
			}
			return compressed.Close()
		}); err != nil {
			return err
		}
		say("%s", out)
	}
	return nil
}

// chartVersion is the version without the leading v, as Helm requires it.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.version, "v") }

// chartFiles returns the content of the package of a chart.
func (r *release) chartFiles(c *chart) ([]file, error) {
	var files []file
	add := func(name string, content []byte) {
		files = append(files, file{path.Join(c.name, name), content, 0o644})
	}
	source := filepath.Join(r.root, "artifacts", "charts", c.name)
	if err := filepath.WalkDir(source, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, name)
		if err != nil {
			return err
		}
		switch relative {
		case "Chart.yaml":
			content = fmt.Appendf(content, "version: %s\nappVersion: %s\nkubeVersion: %q\n", r.chartVersion(), r.version, kubeVersion)
		case "values.yaml":
			for _, image := range images {
				content = []byte(strings.ReplaceAll(string(content), "repository: "+image.name+"\n", "repository: "+r.in(image.name)+"\n"))
			}
		}
		add(filepath.ToSlash(relative), content)
		return nil
	}); err != nil {
		return nil, err
	}
	templates, err := r.templates(c)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		add("templates/"+name, r.ownDocs([]byte(templates[name])))
	}
	return files, nil
}

// templates returns the templates of a chart, one file for each kind.
func (r *release) templates(c *chart) (map[string]string, error) {
	objects := map[string]node{}
	choices := c.choices()
	for _, chosen := range choices {
		// Without an external etcd there is a volume, whose patches otherwise match nothing.
		k := &kustomize.Kustomization{Resources: c.resources, Patches: slices.Clone(c.settings)}
		for i, option := range c.options {
			if chosen.has(i) && option.patch != nil {
				k.Patches = append(k.Patches, *option.patch)
			} else if chosen.has(i) {
				k.Components = append(k.Components, option.component)
			}
		}
		built, err := r.kustomize(k)
		if err != nil {
			return nil, err
		}
		for _, object := range built {
			id := identity(object)
			if objects[id] == nil {
				objects[id] = node{}
			}
			objects[id][chosen] = object
		}
	}
	compiled := &compiler{options: c.options}
	fill := strings.NewReplacer(c.fill...)
	out := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(objects)) {
		lines, err := compiled.object(objects[id], choices)
		if err != nil {
			return nil, err
		}
		name := strings.ToLower(first(objects[id]).(map[string]any)["kind"].(string)) + ".yaml"
		out[name] += fill.Replace(strings.Join(lines, "\n")) + "\n"
	}
	return out, nil
}

// choices returns all combinations of options, but those that are alone only alone.
func (c *chart) choices() []choice {
	var out []choice
	for chosen := range choice(1) << len(c.options) {
		count, alone, excluded := 0, false, false
		for i, option := range c.options {
			if chosen.has(i) {
				count++
				alone = alone || option.alone
				excluded = excluded || option.excludes && chosen.has(i-1)
			}
		}
		if !excluded && (!alone || count == 1) {
			out = append(out, chosen)
		}
	}
	return out
}

// kustomize returns the objects of a kustomization whose paths are relative to artifacts.
func (r *release) kustomize(k *kustomize.Kustomization) ([]map[string]any, error) {
	k.Resources, k.Components = r.artifacts(k.Resources), r.artifacts(k.Components)
	built, err := resources(k)
	if err != nil {
		return nil, err
	}
	var objects []map[string]any
	for _, resource := range built.Resources() {
		content, err := resource.AsYAML()
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := yaml.Unmarshal(content, &object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// artifacts returns the paths of entries of the directory artifacts.
func (r *release) artifacts(names []string) []string {
	paths := make([]string, 0, len(names))
	for _, name := range names {
		paths = append(paths, filepath.Join(r.root, "artifacts", name))
	}
	return paths
}
