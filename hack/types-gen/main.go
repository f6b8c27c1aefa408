// Command types-gen writes zz_generated.types.go into packages:
//
//   - the list of each kind that clients list: one with a client that is not only for creation, or one that is defined by
//     the type of another version;
//   - types with the same text as in another version of the group: for each marker "+same:<version>=<type>,…" in doc.go;
//   - the internal types of a group and their lists: for each marker "+internal:<version>=<kind>,…" in doc.go, types with
//     the fields of that version;
//   - the registration of the generated defaults, where doc.go has the marker of defaulter-gen.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

var (
	packageName    = regexp.MustCompile(`(?m)^package (\w+)$`)
	sameMarker     = regexp.MustCompile(`(?m)^// \+same:(\w+)=(\S+)$`)
	internalMarker = regexp.MustCompile(`(?m)^// \+internal:(\w+)=(\S+)$`)
	importSpec     = regexp.MustCompile(`(?m)^(?:import |\t)((\w+ )?"(?:\S+/)?(\S+)")$`)
	// kind matches the markers of a type, its documentation, its name and its definition.
	kind = regexp.MustCompile(`(?m)((?:^// \+.*\n)+)\n(?:^//.*\n)+^type (\w+) (\S+)`)
)

const metav1 = `metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"`

// contents are the contents of a generated file.
type contents struct {
	Header, Package string
	Imports         []string
	Defaults        bool
	// Internal are the kinds of a group by the version that defines them.
	Internal map[string][]string
	Same     []string
	Listed   []string
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: types-gen <file with the header> <import path> <directory>...")
	}
	header, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for _, dir := range os.Args[3:] {
		c := &contents{Header: string(header), Internal: map[string][]string{}}
		if err := c.generate(dir, os.Args[2]+"/"+dir); err != nil {
			log.Fatalf("%s: %v", dir, err)
		}
	}
}

func (c *contents) generate(dir, path string) error {
	doc, err := os.ReadFile(filepath.Join(dir, "doc.go"))
	if err != nil {
		return err
	}
	c.Package = packageName.FindStringSubmatch(string(doc))[1]
	c.Defaults = bytes.Contains(doc, []byte("\n// +k8s:defaulter-gen="))
	for _, match := range internalMarker.FindAllStringSubmatch(string(doc), -1) {
		c.Internal[match[1]] = strings.Split(match[2], ",")
		c.Imports = append(c.Imports, metav1, `"`+path+"/"+match[1]+`"`)
	}
	for _, match := range sameMarker.FindAllStringSubmatch(string(doc), -1) {
		if err := c.copy(filepath.Join(filepath.Dir(dir), match[1]), strings.Split(match[2], ",")); err != nil {
			return err
		}
	}
	text, err := typesIn(dir)
	if err != nil {
		return err
	}
	for _, match := range kind.FindAllStringSubmatch(text+strings.Join(c.Same, "\n"), -1) {
		if isListed(match[1], match[3]) {
			c.Listed = append(c.Listed, match[2])
			c.Imports = append(c.Imports, metav1)
		}
	}
	slices.Sort(c.Listed)
	slices.Sort(c.Imports)
	c.Imports = slices.Compact(c.Imports)
	if !c.Defaults && len(c.Imports) == 0 {
		return nil
	}
	var out bytes.Buffer
	if err := generated.Execute(&out, c); err != nil {
		return err
	}
	formatted, err := format.Source(out.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "zz_generated.types.go"), formatted, 0o644)
}

// typesIn returns the text of the files that define the types of a package.
func typesIn(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "types_*.go"))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// copy adds types of a package, and what they import.
func (c *contents) copy(dir string, names []string) error {
	text, err := typesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		found := regexp.MustCompile(`(?m)(?:(?:^// \+.*\n)+\n)?(?:^//.*\n)+^type ` + name + ` struct \{\n(?:.*\n)*?\}\n`).FindString(text)
		if found == "" {
			return fmt.Errorf("%s has no type %s", dir, name)
		}
		c.Same = append(c.Same, found)
		for _, spec := range importSpec.FindAllStringSubmatch(text, -1) {
			name := cmp.Or(strings.TrimSpace(spec[2]), spec[3])
			if regexp.MustCompile(`\b` + name + `\.`).MatchString(found) {
				c.Imports = append(c.Imports, spec[1])
			}
		}
	}
	return nil
}

func isListed(markers, definition string) bool {
	object := strings.Contains(markers, "+k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object\n")
	client := strings.Contains(markers, "+genclient\n") && !strings.Contains(markers, "+genclient:onlyVerbs=create\n")
	return object && (client || definition != "struct")
}

// plural returns the plural of a kind.
func plural(kind string) string {
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	return kind + "s"
}

var generated = template.Must(template.New("types").Funcs(template.FuncMap{"plural": plural}).Parse(`{{.Header}}
// Code generated by types-gen. DO NOT EDIT.

package {{.Package}}
{{if .Imports}}
import (
{{range .Imports}}	{{.}}
{{end}})
{{end}}
{{- if .Defaults}}
func init() { localSchemeBuilder.Register(RegisterDefaults) }
{{end}}
{{- range .Same}}
{{.}}{{end}}
{{- range $version, $kinds := .Internal}}{{range $kinds}}
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// {{.}} is the internal form of a {{$version}}.{{.}}.
type {{.}} {{$version}}.{{.}}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// {{.}}List is a list of {{plural .}}.
type {{.}}List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []{{.}}
}
{{end}}{{end}}
{{- range .Listed}}
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// {{.}}List is a list of {{plural .}}.
type {{.}}List struct {
	metav1.TypeMeta ` + "`json:\",inline\"`" + `
	// Standard list metadata.
	// +optional
	metav1.ListMeta ` + "`json:\"metadata,omitempty\"`" + `

	// items is the list of {{plural .}}.
	Items []{{.}} ` + "`json:\"items\"`" + `
}
{{end}}`))
