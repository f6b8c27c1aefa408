package inventory

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

// Options are the flags of the inventory.
type Options struct {
	Enabled bool
	// ConfigFile is the path of a file with a Configuration, or empty.
	ConfigFile string
	// Configuration contains the values of flags, which add to those of the file.
	Configuration
}

// NewOptions returns the default options.
func NewOptions() *Options { return &Options{Enabled: true} }

func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "inventory", o.Enabled, "Report the resources of the managed cluster to the hub for searches. Values of Secrets and ConfigMaps are never read.")
	fs.StringSliceVar(&o.Include, "inventory-include", o.Include, "Resources to report, as group/resource, or resource for the core group. Each part may contain wildcards, as in apps/* or */ingresses. If it is empty, all are reported.")
	fs.StringSliceVar(&o.Exclude, "inventory-exclude", o.Exclude, "Resources not to report, in the form of --inventory-include. It takes precedence over --inventory-include.")
	fs.BoolVar(&o.Annotations, "inventory-annotations", o.Annotations, "Also report annotations with values of at most 64 characters.")
	fs.StringVar(&o.ConfigFile, "inventory-config", o.ConfigFile, "YAML file that configures the report: include and exclude, in addition to the flags, namespaces, and fields of resources.")
}

// Settings reads the configuration file, if any, and returns all errors of the file and of the
// options. It returns nil if the inventory is disabled.
func (o *Options) Settings() (*Settings, error) {
	if !o.Enabled {
		return nil, nil
	}
	var configuration Configuration
	if o.ConfigFile != "" {
		data, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("--inventory-config: %w", err)
		}
		if err := yaml.UnmarshalStrict(data, &configuration); err != nil {
			return nil, fmt.Errorf("--inventory-config %s: %w", o.ConfigFile, err)
		}
	}
	configuration.Include = append(configuration.Include, o.Include...)
	configuration.Exclude = append(configuration.Exclude, o.Exclude...)
	configuration.Annotations = configuration.Annotations || o.Annotations
	settings, err := configuration.Settings()
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	return settings, nil
}

// Configuration is the content of a configuration file.
type Configuration struct {
	// Include and Exclude select resources, as "group/resource", or only "resource" for the core
	// group. Each part may contain wildcards, as in "apps/*". An empty Include selects all
	// resources. Exclude takes precedence.
	Include     []string `json:"include,omitempty"`
	Exclude     []string `json:"exclude,omitempty"`
	Annotations bool     `json:"annotations,omitempty"`
	// Namespaces selects namespaces by name, with optional wildcards. It applies to the Namespace
	// object and to the objects in the namespace.
	Namespaces struct {
		Include []string `json:"include,omitempty"`
		Exclude []string `json:"exclude,omitempty"`
	} `json:"namespaces,omitempty"`
	// Resources lists resources with additional properties, such as custom resources. By default,
	// the agent reports only metadata of them.
	Resources []ResourceFields `json:"resources,omitempty"`
}

// ResourceFields contains the additional properties of a resource. The agent then reads complete
// objects, so Secrets and ConfigMaps are not allowed.
type ResourceFields struct {
	// Resource is "group/resource", without wildcards.
	Resource string `json:"resource"`
	// Conditions enables the report of status.conditions as the property condition.
	Conditions bool    `json:"conditions,omitempty"`
	Fields     []Field `json:"fields,omitempty"`
}

// Field is a property that is read from an object.
type Field struct {
	Name string `json:"name"`
	// Path is a JSONPath such as ".status.notAfter". If it finds several values,
	// the property is a list.
	Path string `json:"path"`
}

// Settings are a validated Configuration.
type Settings struct {
	include, exclude                       []pattern
	includedNamespaces, excludedNamespaces []string
	annotations                            bool
	fields                                 map[schema.GroupResource]ResourceFields
}

// Settings validates the configuration and returns all its errors.
func (c *Configuration) Settings() (*Settings, error) {
	s := &Settings{
		includedNamespaces: c.Namespaces.Include, excludedNamespaces: c.Namespaces.Exclude,
		annotations: c.Annotations, fields: map[schema.GroupResource]ResourceFields{},
	}
	var errs []error
	patterns := func(name string, texts []string) (found []pattern) {
		for _, text := range texts {
			p, err := parsePattern(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			found = append(found, p)
		}
		return found
	}
	s.include, s.exclude = patterns("include", c.Include), patterns("exclude", c.Exclude)
	for name, globs := range map[string][]string{"namespaces.include": c.Namespaces.Include, "namespaces.exclude": c.Namespaces.Exclude} {
		for _, glob := range globs {
			if _, err := path.Match(glob, ""); err != nil {
				errs = append(errs, fmt.Errorf("%s: %q: %w", name, glob, err))
			}
		}
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		p, err := parsePattern(r.Resource)
		switch gr := (schema.GroupResource{Group: p.group, Resource: p.resource}); {
		case err != nil:
			errs = append(errs, fmt.Errorf("resources[%d]: %w", i, err))
		case strings.ContainsAny(r.Resource, "*?[\\"):
			errs = append(errs, fmt.Errorf("resources[%d]: %q must name one resource", i, r.Resource))
		case metadataOnly[gr]:
			errs = append(errs, fmt.Errorf("resources[%d]: %s are never read whole", i, gr))
		default:
			if err := r.check(); err != nil {
				errs = append(errs, fmt.Errorf("resources[%d]: %w", i, err))
			}
			if _, twice := s.fields[gr]; twice {
				errs = append(errs, fmt.Errorf("resources[%d]: %s is there twice", i, gr))
			}
			s.fields[gr] = *r
		}
	}
	return s, utilerrors.NewAggregate(errs)
}

func (r *ResourceFields) check() error {
	var errs []error
	for _, field := range r.Fields {
		if field.Name == "" || reservedProperties.Has(field.Name) || strings.HasPrefix(field.Name, "_") {
			errs = append(errs, fmt.Errorf("field %q: the name is empty or has a meaning already", field.Name))
		}
		if _, err := field.parse(); err != nil {
			errs = append(errs, fmt.Errorf("field %q: %w", field.Name, err))
		}
	}
	return errors.Join(errs...)
}

// parse returns the parsed path, which is not safe for concurrent use.
func (f Field) parse() (*jsonpath.JSONPath, error) {
	if f.Path == "" {
		return nil, errors.New("the path is missing")
	}
	template, err := fieldpath.Template(strings.TrimSpace(f.Path))
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", f.Path, err)
	}
	parsed := jsonpath.New(f.Name).AllowMissingKeys(true)
	if err := parsed.Parse(template); err != nil {
		return nil, fmt.Errorf("path %q: %w", f.Path, err)
	}
	return parsed, nil
}

// pattern is a group and a resource, with wildcards. "core" is an alias of the core group.
type pattern struct{ group, resource string }

func parsePattern(text string) (pattern, error) {
	p := pattern{resource: text}
	if group, resource, found := strings.Cut(text, "/"); found {
		p = pattern{group, resource}
	}
	if p.group == "core" {
		p.group = ""
	}
	for _, part := range []string{p.group, p.resource} {
		if _, err := path.Match(part, ""); err != nil {
			return p, fmt.Errorf("%q: %w", text, err)
		}
	}
	if p.resource == "" || strings.Contains(p.resource, "/") {
		return p, fmt.Errorf("%q is not group/resource", text)
	}
	return p, nil
}

func (p pattern) matches(gr schema.GroupResource) bool {
	group, _ := path.Match(p.group, gr.Group)
	resource, _ := path.Match(p.resource, gr.Resource)
	return group && resource
}

func anyMatches(patterns []pattern, gr schema.GroupResource) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.matches(gr) })
}

func (s *Settings) reports(gr schema.GroupResource) bool {
	return !neverReported(gr) && (len(s.include) == 0 || anyMatches(s.include, gr)) && !anyMatches(s.exclude, gr)
}

func (s *Settings) reportsNamespace(name string) bool {
	matches := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool {
			ok, _ := path.Match(glob, name)
			return ok
		})
	}
	return (len(s.includedNamespaces) == 0 || matches(s.includedNamespaces)) && !matches(s.excludedNamespaces)
}
