package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubescheme "k8s.io/client-go/kubernetes/scheme"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/command"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm"
)

// facts are what the pages may claim, read from the code.
type facts struct {
	programs map[string]*cobra.Command
	flags    map[string]bool
	targets  map[string]bool
	literals map[string]bool
	fields   map[string]bool
	columns  map[string]map[string]bool
	metrics  map[string]bool
	strict   runtime.Decoder
}

// foreign are flags of other programs that the pages name: kubectl, helm, kube-apiserver, etcd, aws and others.
var foreign = strings.Fields(`--all --all-namespaces --annotations --as-user-extra --authentication-token-webhook-config-file --backend-mode
	--cascade --chunk-size --cluster-id --delete --enable-aggregator-routing --for --force --from-literal
	--kubelet-client-certificate --node-monitor-grace-period --output --overwrite --patch --replicas --reuse-values --selector
	--server-side --set --subresource --type --validate --values --version --watch --watch-progress-notify-interval`)

func readFacts(t *testing.T) *facts {
	t.Helper()
	var out bytes.Buffer
	f := &facts{
		programs: map[string]*cobra.Command{
			"clusteradm": clusteradm.New(&out, &out, &out), "apiserver": command.New(), "agent": agent.NewCommand(),
		},
		flags: map[string]bool{}, targets: map[string]bool{}, fields: map[string]bool{}, columns: map[string]map[string]bool{},
		metrics: map[string]bool{}, literals: literals(t),
		strict: serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer(),
	}
	for _, flag := range foreign {
		f.flags[flag] = true
	}
	for _, program := range f.programs {
		program.InitDefaultCompletionCmd()
		walk(program, func(c *cobra.Command) {
			add := func(flag *pflag.Flag) { f.flags["--"+flag.Name] = true }
			c.LocalFlags().VisitAll(add)
			c.InheritedFlags().VisitAll(add)
		})
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(string(makefile), -1) {
		f.targets[match[1]] = true
	}
	for _, s := range []*runtime.Scheme{scheme.Scheme, kubescheme.Scheme} {
		for _, kind := range s.AllKnownTypes() {
			f.addFields(kind, map[reflect.Type]bool{})
		}
	}
	for _, row := range apiserver.Resources(apiserver.Dependencies{}) {
		names := map[string]bool{"NAMESPACE": true}
		for _, column := range row.TableColumns() {
			names[strings.ToUpper(column.Name)] = true
		}
		for _, name := range append(row.ShortNames, row.Name, row.Singular) {
			f.columns[name] = names
		}
	}
	for name := range instruments(t) {
		f.metrics[name] = true
	}
	return f
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, child := range c.Commands() {
		walk(child, visit)
	}
}

// addFields adds the names of the JSON fields of a type and of the types of its fields.
func (f *facts) addFields(kind reflect.Type, seen map[reflect.Type]bool) {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || seen[kind] {
		return
	}
	seen[kind] = true
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		f.fields[name] = true
		f.addFields(kind.Field(i).Type, seen)
	}
}

// literals returns the string constants of the packages.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					found[value] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("literals() = %d strings, %v, want some and no error", len(found), err)
	}
	return found
}

var (
	program   = regexp.MustCompile(`(?:^|[|&;(] *|\$ +)(?:\./|bin/)?(clusteradm|apiserver|kubectl clusteradm) +(.*)`)
	target    = regexp.MustCompile(`(?:^|[|&;(] *|\$ +)(?:[A-Z_]+=\S+ +)*make +([a-z][a-z-]*)`)
	flagName  = regexp.MustCompile(`^--[a-z][a-z0-9-]*`)
	fieldPath = regexp.MustCompile(`^(?:spec|status)(?:\.[a-zA-Z]+(?:\[[^\]]*\])?)+$`)
	condition = regexp.MustCompile("(?:[Cc]ondition|[Rr]eason)s? `([A-Z][A-Za-z]+)`")
	metric    = regexp.MustCompile(`^(?:hub_apiserver|hub_agent|reconcile)_[a-z_]+`)
	suffix    = regexp.MustCompile(`_(?:bucket|sum|count)$`)
	get       = regexp.MustCompile(`\$ kubectl (?:--context \S+ )?get ([a-z]+)\b(?: +(?:-n|-A|-o wide|[a-z][a-z0-9-]*))*\n *([A-Z][A-Z ]+)\n`)
	progress  = regexp.MustCompile(`(?m)^ *[0-9.]+m?s +[0-9]+/[0-9]+ +(.+)$`)
)

// problems returns the claims of a page that the code contradicts.
func (f *facts) problems(text string) (found []string) {
	prose, codes := Blocks(text)
	for _, match := range code.FindAllStringSubmatch(prose, -1) {
		found = append(found, f.span(match[1])...)
	}
	for _, match := range condition.FindAllStringSubmatch(prose, -1) {
		if !f.literals[match[1]] {
			found = append(found, fmt.Sprintf("%q is no condition and no reason", match[1]))
		}
	}
	for _, text := range codes {
		found = append(found, f.block(text)...)
	}
	return found
}

// span checks the text between two backticks.
func (f *facts) span(text string) (found []string) {
	if name := flagName.FindString(text); name != "" && !f.flags[name] {
		found = append(found, fmt.Sprintf("no program has the flag %s", name))
	}
	if fieldPath.MatchString(text) && filepath.Ext(text) != ".go" {
		for _, part := range strings.Split(text, ".") {
			part, _, _ = strings.Cut(part, "[")
			if !f.fields[part] {
				found = append(found, fmt.Sprintf("no type has the field %q of %s", part, text))
			}
		}
	}
	if name := metric.FindString(text); name != "" && !f.metrics[name] && !f.metrics[suffix.ReplaceAllString(name, "")] {
		found = append(found, fmt.Sprintf("no package defines the metric %s", name))
	}
	return append(found, f.line(text)...)
}

// block checks a block of code: its commands, output and objects.
func (f *facts) block(text string) (found []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		found = append(found, f.line(strings.TrimSpace(line))...)
	}
	for _, match := range get.FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(match[2]), -1) {
			if columns := f.columns[match[1]]; columns != nil && !columns[name] {
				found = append(found, fmt.Sprintf("kubectl get %s has no column %q", match[1], name))
			}
		}
	}
	for _, match := range progress.FindAllStringSubmatch(text, -1) {
		if name := strings.TrimSpace(match[1]); !f.literals[name] {
			found = append(found, fmt.Sprintf("no command has the step %q", name))
		}
	}
	return append(found, f.objects(text)...)
}

// line checks the commands of a line.
func (f *facts) line(text string) (found []string) {
	for _, match := range target.FindAllStringSubmatch(text, -1) {
		if !f.targets[match[1]] {
			found = append(found, fmt.Sprintf("the Makefile has no target %s", match[1]))
		}
	}
	if match := program.FindStringSubmatch(text); match != nil {
		name := strings.TrimPrefix(match[1], "kubectl ")
		if problem := called(f.programs[name], strings.Fields(match[2])); problem != "" {
			found = append(found, fmt.Sprintf("%s: %s", text, problem))
		}
	}
	return found
}

// called returns why a program does not accept words, or an empty string.
func called(c *cobra.Command, words []string) string {
	for i := 0; i < len(words); i++ {
		word := strings.TrimRight(words[i], ",.;:")
		switch {
		case strings.ContainsAny(word[:min(1, len(word))], "|>&;#<…["):
			return ""
		case flagName.MatchString(word):
			name, _, hasValue := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			flag := c.Flags().Lookup(name)
			if flag == nil {
				flag = c.InheritedFlags().Lookup(name)
			}
			if flag == nil && name != "help" && name != "version" {
				return fmt.Sprintf("%s has no flag --%s", c.CommandPath(), name)
			}
			if flag != nil && !hasValue && flag.NoOptDefVal == "" {
				i++
			}
		case strings.HasPrefix(word, "-"):
			i++ // a short flag with its value, or without one before other flags
		case c.HasAvailableSubCommands():
			at := slices.IndexFunc(c.Commands(), func(child *cobra.Command) bool { return child.Name() == word || child.HasAlias(word) })
			if at < 0 {
				if regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(word) {
					return fmt.Sprintf("%s has no command %s", c.CommandPath(), word)
				}
				return ""
			}
			c = c.Commands()[at]
		}
	}
	return ""
}

// objects checks that the objects of a block decode without unknown fields.
func (f *facts) objects(text string) (found []string) {
	for _, content := range Objects(text) {
		if _, _, err := f.strict.Decode(content, nil, nil); err != nil && !runtime.IsNotRegisteredError(err) && !runtime.IsMissingKind(err) {
			found = append(found, err.Error())
		}
	}
	return found
}

// TestClaims checks commands, flags, targets of make, field paths, conditions, metrics, columns, steps and objects in all
// pages against the code.
func TestClaims(t *testing.T) {
	f := readFacts(t)
	texts, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		for _, problem := range f.problems(text) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// TestFalsehoods plants false claims in a page, each of which must be found.
func TestFalsehoods(t *testing.T) {
	f := readFacts(t)
	for _, falsehood := range []string{
		"    clusteradm init --storge-size 20Gi\n",
		"    $ clusteradm --context hub adopt FILE\n",
		"Run `clusteradm hub adapt FILE`.\n",
		"Set `--search-postgres-replica-url` of the server.\n",
		"    make integration-all\n",
		"The permission is in `spec.roleBinding[0].subject`.\n",
		"It has the condition `AppliedManifestwork`.\n",
		"It is refused with reason `NotPermited`.\n",
		"Alert on `hub_apiserver_etcd_quota_size`.\n",
		"```\n$ kubectl get clusterpermissions -n cluster1\nNAME      APPLIED   OWNER   AGE\non-call   True      x       4s\n```\n",
		"    0.0s  1/11  look at all objects\n",
		"```yaml\napiVersion: rbac.open-cluster-management.io/v1alpha1\nkind: ClusterPermission\nspec: {clusterRoleBindings: [], roleBinding: []}\n```\n",
	} {
		if found := f.problems(falsehood); len(found) == 0 {
			t.Errorf("problems(%q) = none, want one", falsehood)
		}
	}
}
