package hostile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	syncPath       = searchPath + "/namespaces/" + BareCluster + "/inventories/" + BareCluster + "/sync"
	aggregatorPath = "/apis/proxy.open-cluster-management.io/v1beta1/namespaces/" + BareCluster + "/clusterstatuses/" + BareCluster + "/aggregator/sync"
)

// reporting returns a request with a report of the cluster without an agent.
func reporting(report string) Request {
	return Request{As: Agent, Method: http.MethodPost, Path: syncPath, Body: []byte(report)}
}

// report returns an input with a report, which may be compressed.
func report(g *Gen, report string) Input {
	request := reporting(report)
	request.Path = pick(g, syncPath, aggregatorPath)
	if g.IntN(2) == 0 {
		request.Gzip, request.Body = true, compressed(report)
	}
	return Input{Requests: []Request{request}}
}

func compressed(text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	// Writing to a buffer does not fail.
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return out.Bytes()
}

// added returns a report of n resources.
func added(n int, resource func(i int) string) string {
	return `{"addResources":[` + each(n, ",", resource) + `]}`
}

// removing returns a request that removes n resources with a UID that contains a number for %.
func removing(n int, uid string) Request {
	return reporting(`{"deleteResources":[` + each(n, ",", func(i int) string { return `{"uid":"` + BareCluster + `/` + fill(uid, strconv.Itoa(i)) + `"}` }) + `]}`)
}

// resourceJSON returns a reported resource with additional properties in JSON.
func resourceJSON(uid int, properties string) string {
	return fmt.Sprintf(`{"uid":"%s/%d","kind":"Pod","resourceString":"pods","properties":{"name":"n%d","namespace":"ns"%s}}`, BareCluster, uid, uid, properties)
}

// Inventory returns a report of many resources for the searches of the campaign.
func Inventory(n int) string {
	return `{"clearAll":true,` + added(n, func(i int) string {
		return resourceJSON(i, fmt.Sprintf(`,"label":{"k":"v%d","app":"a%d"},"restarts":%d,"value":"%s","text":"av%dva"`, i%7, i%100, i, strings.Repeat("av", 20), i))
	})[1:]
}

func reportClasses() []Class {
	whole := func(name string, generate func(*Gen) string) Class {
		return Class{"report", name, func(g *Gen) Input { return report(g, generate(g)) }}
	}
	resources := func(name string, most int, generate func(g *Gen) func(i int) string) Class {
		return whole(name, func(g *Gen) string { return added(g.upTo(1, most), generate(g)) })
	}
	properties := func(name string, generate func(*Gen) string) Class {
		return whole(name, func(g *Gen) string { return added(1, func(int) string { return resourceJSON(1, ","+generate(g)) }) })
	}
	return []Class{
		properties("nesting", func(g *Gen) string {
			return `"p":` + around(g.upTo(1, 5_000_000), pick(g, "[¦1¦]", `{"a":¦1¦}`, "[¦1¦]", `{"a":¦1¦}`, "[¦1", `{"a":¦1`))
		}),
		properties("numbers", func(g *Gen) string {
			return `"p":` + pick(g, "1e", "-1e-", "0.", "1", "-", "1e309", "1E+") + g.long(1_000_000, "9", "0")
		}),
		properties("text", func(g *Gen) string {
			return `"p":"` + g.long(1_000_000, "a", `\u0000`, `\ud800`, `\\`, "\U0001F600", `\u202e`, "\xff", `\n`) + `"`
		}),
		properties("lists", func(g *Gen) string {
			return `"p":[` + g.list(1_000_000, ",", "1", `"a"`, "null", "{}", "[]", "true", `{"a":1}`) + "]"
		}),
		properties("many properties", func(g *Gen) string { return g.list(300_000, ",", `"p%":"%"`, `"p0":"0"`) }),
		properties("labels", func(g *Gen) string { return `"label":{` + g.list(300_000, ",", `"k%":"v"`) + `}` }),
		resources("many resources", 100_000, func(g *Gen) func(int) string {
			more := pick(g, "", `,"value":"`+strings.Repeat("v", 500)+`"`, `,"label":{"a":"b"}`)
			return func(i int) string { return resourceJSON(1_000_000+i, more) }
		}),
		resources("resources with many distinct values", 2_000, func(g *Gen) func(int) string {
			return func(i int) string {
				return resourceJSON(2_000_000+i, each(100, "", func(j int) string { return fmt.Sprintf(`,"p%d":"%d-%d-%d"`, j, i, j, g.Int64()) }))
			}
		}),
		resources("distinct properties", 1_000, func(*Gen) func(int) string {
			return func(i int) string {
				return resourceJSON(3_000_000+i, each(200, "", func(j int) string { return fmt.Sprintf(`,"p%d_%d":1`, i, j) }))
			}
		}),
		resources("one resource again and again", 100_000, func(*Gen) func(int) string {
			return func(int) string { return resourceJSON(1, "") }
		}),
		resources("malformed resources", 500_000, func(g *Gen) func(int) string {
			bad := pick(g, "{}", "null", "1", `{"uid":1}`, `{"uid":"other/1"}`, `{"UID":"a","uid":"b","Uid":"c"}`, `{"uid":"`+BareCluster+`/1","properties":[]}`, `{"properties":{"name":{}}}`)
			return func(int) string { return bad }
		}),
		whole("edges", func(g *Gen) string {
			n := g.upTo(1, 200_000)
			edge := func(i int) string {
				return fmt.Sprintf(`{"SourceUID":"%s/%d","DestUID":"%s/%d","EdgeType":"%s"}`, BareCluster, i%100, BareCluster, i*7%100, pick(g, "a", "b", "t"+strconv.Itoa(i)))
			}
			return `{"addEdges":[` + each(n, ",", edge) + `],"deleteEdges":[` + each(n/10, ",", edge) + `]}`
		}),
		whole("deletions", func(g *Gen) string { return string(removing(g.upTo(1, 300_000), "x%").Body) }),
		whole("unknown fields", func(g *Gen) string { return `{` + g.mix(300_000, ",", `"f%":1`, `"f%":[[]]`, `"f%":"a"`) + `}` }),
		{"report", "compressed", func(g *Gen) Input {
			// A decompression bomb.
			size := g.upTo(1, 600) << 20
			request := reporting("")
			request.Gzip, request.Body = true, compressed(`{"addResources":[`+strings.Repeat(pick(g, " ", "[", "1,", `{"uid":"a"},`), size/8)+`]}`)
			return Input{Requests: []Request{request}}
		}},
		{"report", "not well compressed", func(g *Gen) Input {
			return Input{Requests: []Request{{As: Agent, Method: http.MethodPost, Path: aggregatorPath, Gzip: true, Body: []byte(g.long(100_000, "\x1f\x8b\x08\x00", "\x00", "{}"))}}}
		}},
	}
}
