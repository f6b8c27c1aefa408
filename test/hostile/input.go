package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Names in the inputs.
const (
	// AgentCluster has an agent, which applies the ManifestWorks of the tenant.
	AgentCluster = "cluster1"
	// BareCluster has no agent. Inputs act as its agent.
	BareCluster = "cluster2"
	// Namespace is the namespace of the objects of ManifestWorks on the managed cluster.
	Namespace = "hostile-objects"
	// object is the name of every input's object, because inputs are sent one after another.
	object = "hostile"
)

// Identity is the sender of a request.
type Identity string

const (
	// Administrator is the identity of requests without another one.
	Administrator Identity = ""
	// Tenant may write ManifestWorks, ClusterPermissions and ManagedServiceAccounts in the
	// namespace of AgentCluster, and search.
	Tenant Identity = "tenant"
	// Agent is the agent of BareCluster.
	Agent Identity = "agent"
	// Applicant is the agent of a cluster that requests its registration.
	Applicant Identity = "applicant"
)

// Request is one HTTP request.
type Request struct {
	As           Identity
	Method, Path string
	// ContentType is the content type of Body; that of a merge patch for PATCH, and JSON otherwise, if empty.
	ContentType string
	// Gzip is set if Body is compressed.
	Gzip bool
	Body []byte
}

// Input is the sequence of requests of one hostile caller.
type Input struct {
	Requests []Request
	// Created is the path of an object that an administrator deletes afterwards.
	Created string
	// Reported are the conditions that the agent reports for the manifest of a ManifestWork.
	Reported []string
	// Check runs after the requests, if not nil. It returns why the input is over the bound, or "".
	Check func(ctx context.Context, s *Site) (string, error)
}

// Class is a row of [Classes].
type Class struct {
	// Language is the language of the input, and Name the class of input.
	Language, Name string
	// Generate returns an input of the class.
	Generate func(*Gen) Input
}

// Classes returns the table of generators.
func Classes() []Class {
	return slices.Concat(
		celClasses(), jqClasses(), jsonPathClasses(), selectorClasses(), searchClasses(), graphQLClasses(),
		reportClasses(), manifestClasses(), permissionClasses(), otherClasses(), believedClasses(),
	)
}

// String returns the class in the form of HOSTILE_ONLY.
func (c *Class) String() string { return c.Language + "/" + c.Name }

// Case is one input of a class.
type Case struct {
	Class *Class
	Size  int
	Seed  uint64
}

// String returns the case in the form of HOSTILE_REPEAT.
func (c Case) String() string { return fmt.Sprintf("%s/%d/%d", c.Class, c.Size, c.Seed) }

// Input generates the input.
func (c Case) Input() Input { return c.Class.Generate(c.gen()) }

func (c Case) gen() *Gen {
	of := fnv.New64a()
	_, _ = of.Write([]byte(c.Class.String()))
	return &Gen{Rand: rand.New(rand.NewPCG(c.Seed, of.Sum64())), Size: c.Size}
}

// ParseCase parses a case in the form of [Case.String].
func ParseCase(text string) (Case, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return Case{}, fmt.Errorf("case %q: want language/class/size/seed", text)
	}
	size, err := strconv.Atoi(parts[2])
	if err != nil || size < 1 || size > 100 {
		return Case{}, fmt.Errorf("case %q: the size must be from 1 to 100", text)
	}
	seed, err := strconv.ParseUint(parts[3], 10, 64)
	if err != nil {
		return Case{}, fmt.Errorf("case %q: the seed: %w", text, err)
	}
	for _, class := range Classes() {
		if class.String() == parts[0]+"/"+parts[1] {
			return Case{Class: &class, Size: size, Seed: seed}, nil
		}
	}
	return Case{}, fmt.Errorf("case %q: unknown class", text)
}

// Gen is the source of random choices of a generator.
type Gen struct {
	*rand.Rand
	// Size is from 1 to 100.
	Size int
}

// upTo returns a number from low to high. The size determines the maximum in geometric steps. Half
// of the numbers are the maximum, and the others are random numbers up to it.
func (g *Gen) upTo(low, high int) int {
	most := int(math.Round(float64(low) * math.Pow(float64(high)/float64(low), float64(g.Size)/100)))
	if g.IntN(2) == 0 {
		return most
	}
	return low + g.IntN(most-low+1)
}

// name returns the n-th short name. Names are distinct.
func name(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return "v" + strconv.Itoa(n)
}

func pick[T any](g *Gen, of ...T) T { return of[g.IntN(len(of))] }

// long repeats one of the texts up to a maximum number of times.
func (g *Gen) long(most int, of ...string) string {
	return strings.Repeat(pick(g, of...), g.upTo(1, most))
}

// list repeats one of the texts, with a number for each %.
func (g *Gen) list(most int, separator string, of ...string) string {
	return g.mix(most, separator, pick(g, of...))
}

// mix does the same with another text for each item.
func (g *Gen) mix(most int, separator string, of ...string) string {
	return each(g.upTo(1, most), separator, func(i int) string { return fill(pick(g, of...), strconv.Itoa(i)) })
}

// many returns the items of mix.
func (g *Gen) many(most int, of ...string) []string {
	return strings.Split(g.mix(most, "\n", of...), "\n")
}

// each joins the texts of 0 to n-1.
func each(n int, separator string, text func(i int) string) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteString(separator)
		}
		out.WriteString(text(i))
	}
	return out.String()
}

// fill replaces each % in a text with a value, except in %s.
func fill(text, value string) string {
	parts := strings.Split(text, "%s")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "%", value)
	}
	return strings.Join(parts, "%s")
}

// nest wraps an expression n times in one of the layers. In a layer, % is the expression and # the name of the level.
func nest(g *Gen, n int, inner string, layers ...string) string {
	for i := range n {
		inner = fill(strings.ReplaceAll(pick(g, layers...), "#", name(i)), inner)
	}
	return inner
}

// around repeats the first and the third of the parts of a text, which ¦ separates, around the second one.
func around(n int, text string) string {
	parts := append(strings.SplitN(text, "¦", 4), "", "")
	return strings.Repeat(parts[0], n) + parts[1] + strings.Repeat(parts[2], n) + parts[3]
}

// chain repeats the second of three parts.
func chain(n int, text string) string {
	parts := append(strings.SplitN(text, "¦", 3), "")
	return parts[0] + strings.Repeat(parts[1], n) + parts[2]
}

// within returns the text of a number up to most. It decreases the number until the server accepts the length of the
// text, or the number is 1.
func within(g *Gen, most int, text func(g *Gen, n int) string) string {
	n := g.upTo(1, most)
	out := text(g, n)
	for n > 1 && len(out) > expressionLength {
		n = max(1, min(n-1, n*expressionLength/len(out)))
		out = text(g, n)
	}
	return out
}

// fields is a JSON object.
type fields = map[string]any

func encode(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err) // a generator's own value
	}
	return content
}

const (
	worksPath       = "/apis/work.open-cluster-management.io/v1/namespaces/" + AgentCluster + "/manifestworks"
	permissionsPath = "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + AgentCluster + "/clusterpermissions"
	accountsPath    = "/apis/authentication.open-cluster-management.io/v1beta1/namespaces/" + AgentCluster + "/managedserviceaccounts"
	searchPath      = "/apis/search.open-cluster-management.io/v1alpha1"
	namespacesPath  = "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + BareCluster + "/clusternamespaces"
	clustersPath    = "/apis/cluster.open-cluster-management.io/v1/managedclusters"
)

// body returns an object in JSON. The path of its resource contains its API version. more are fields after the
// metadata, and metadata those after the name.
func body(path, kind, metadata, more string) []byte {
	version := strings.Split(path, "/")
	return fmt.Appendf(nil, `{"apiVersion":"%s/%s","kind":%q,"metadata":{"name":%q%s}%s}`, version[2], version[3], kind, object, metadata, more)
}

// spec returns the field spec in JSON.
func spec(value any) string { return `,"spec":` + string(encode(value)) }

// once returns an input of one request.
func once(as Identity, method, path string, body []byte) Input {
	return Input{Requests: []Request{{As: as, Method: method, Path: path, Body: body}}}
}

// create returns an input that creates an object, first as a dry run.
func create(as Identity, path, kind, metadata, more string) Input {
	content := body(path, kind, metadata, more)
	return Input{
		Requests: []Request{{As: as, Method: http.MethodPost, Path: path + "?dryRun=All", Body: content}, {As: as, Method: http.MethodPost, Path: path, Body: content}},
		Created:  path + "/" + object,
	}
}

// work returns an input in which the tenant creates a ManifestWork.
func work(of fields, reported ...string) Input {
	if of["deleteOption"] == nil {
		of["deleteOption"] = fields{"propagationPolicy": "Orphan"}
	}
	input := create(Tenant, worksPath, "ManifestWork", "", spec(of))
	input.Reported = append([]string{"Applied"}, reported...)
	return input
}

// simple is the spec of a ManifestWork of one small ConfigMap, with additional fields.
func simple(more fields) fields {
	out := fields{"workload": fields{"manifests": []any{configMap(fields{"a": "b"})}}}
	maps.Copy(out, more)
	return out
}

// configMap returns the object to which the expressions in ManifestWorks apply.
func configMap(data fields) fields {
	return fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"namespace": Namespace, "name": object}, "data": data}
}

// data returns the content of a ConfigMap: many keys, long values, or both.
func data(g *Gen) fields {
	out := fields{"k": strings.Repeat("a", g.upTo(1, 20_000)), "p": "(a+)+$", "n": "1"}
	for i := range g.upTo(1, 2_000) {
		out["key"+strconv.Itoa(i)] = strings.Repeat("v", 1+g.IntN(20))
	}
	return out
}

// configured returns a ManifestWork of one ConfigMap with a manifestConfig.
func configured(g *Gen, config fields, reported ...string) Input {
	config["resourceIdentifier"] = fields{"resource": "configmaps", "namespace": Namespace, "name": object}
	return work(fields{"workload": fields{"manifests": []any{configMap(data(g))}}, "manifestConfigs": []any{config}}, reported...)
}

// Named returns the input with another name for its object, so that inputs can be sent
// concurrently.
func (i Input) Named(name string) Input {
	i.Requests = slices.Clone(i.Requests)
	for at := range i.Requests {
		request := &i.Requests[at]
		request.Body = bytes.ReplaceAll(request.Body, []byte(`"`+object+`"`), []byte(`"`+name+`"`))
		path, query, queried := strings.Cut(request.Path, "?")
		if before, found := strings.CutSuffix(path, "/"+object); found {
			request.Path = before + "/" + name
			if queried {
				request.Path += "?" + query
			}
		}
	}
	if path, found := strings.CutSuffix(i.Created, "/"+object); found {
		i.Created = path + "/" + name
	}
	return i
}
