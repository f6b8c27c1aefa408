package hostile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strconv"
	"strings"
)

const (
	syncPath       = searchPath + "/namespaces/" + BareCluster + "/inventories/" + BareCluster + "/sync"
	aggregatorPath = "/apis/proxy.open-cluster-management.io/v1beta1/namespaces/" + BareCluster + "/clusterstatuses/" + BareCluster + "/aggregator/sync"
)

// report returns a report of the cluster without an agent.
func report(g *Gen, body []byte) Input {
	request := Request{As: Agent, Method: "POST", Path: pick(g, syncPath, aggregatorPath), Body: body}
	if g.IntN(2) == 0 {
		request.Gzip, request.Body = true, compressed(body)
	}
	return Input{Requests: []Request{request}}
}

func compressed(body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	// Writing to a buffer does not fail.
	_, _ = w.Write(body)
	_ = w.Close()
	return out.Bytes()
}

// resourceJSON returns a reported resource with additional properties in JSON.
func resourceJSON(uid int, properties string) string {
	return fmt.Sprintf(`{"uid":"%s/%d","kind":"Pod","resourceString":"pods","properties":{"name":"n%d","namespace":"ns"%s}}`, BareCluster, uid, uid, properties)
}

// Inventory returns a report of many resources for the searches of the campaign.
func Inventory(n int) []byte {
	return []byte(`{"clearAll":true,"addResources":[` + each(n, ",", func(i int) string {
		return resourceJSON(i, fmt.Sprintf(`,"label":{"k":"v%d","app":"a%d"},"restarts":%d,"value":"%s","text":"av%dva"`, i%7, i%100, i, strings.Repeat("av", 20), i))
	}) + `]}`)
}

func reportClasses() []Class {
	added := func(name string, generate func(*Gen) string) Class {
		return Class{"report", name, func(g *Gen) Input { return report(g, []byte(`{"addResources":[`+generate(g)+`]}`)) }}
	}
	property := func(name string, generate func(*Gen) string) Class {
		return added(name, func(g *Gen) string { return resourceJSON(1, `,"p":`+generate(g)) })
	}
	return []Class{
		property("nesting", func(g *Gen) string {
			n := g.upTo(1, 5_000_000)
			open, end := "[", "]"
			if g.IntN(2) == 0 {
				open, end = `{"a":`, "}"
			}
			if g.IntN(3) == 0 {
				end = ""
			}
			return strings.Repeat(open, n) + "1" + strings.Repeat(end, n)
		}),
		property("numbers", func(g *Gen) string {
			return pick(g, "1e", "-1e-", "0.", "1", "-", "1e309", "1E+") + strings.Repeat(pick(g, "9", "0"), g.upTo(1, 1_000_000))
		}),
		property("text", func(g *Gen) string {
			return `"` + strings.Repeat(pick(g, "a", `\u0000`, `\ud800`, `\\`, "\U0001F600", `\u202e`, "\xff", `\n`), g.upTo(1, 1_000_000)) + `"`
		}),
		property("lists", func(g *Gen) string {
			value := pick(g, "1", `"a"`, "null", "{}", "[]", "true", `{"a":1}`)
			return "[" + each(g.upTo(1, 1_000_000), ",", func(int) string { return value }) + "]"
		}),
		added("many properties", func(g *Gen) string {
			same := g.IntN(2) == 0
			return resourceJSON(1, each(g.upTo(1, 300_000), "", func(i int) string {
				if same {
					i = 0
				}
				return fmt.Sprintf(`,"p%d":"%d"`, i, i)
			}))
		}),
		added("labels", func(g *Gen) string {
			return resourceJSON(1, `,"label":{`+each(g.upTo(1, 300_000), ",", func(i int) string { return fmt.Sprintf(`"k%d":"v"`, i) })+`}`)
		}),
		added("many resources", func(g *Gen) string {
			more := pick(g, "", `,"value":"`+strings.Repeat("v", 500)+`"`, `,"label":{"a":"b"}`)
			return each(g.upTo(1, 100_000), ",", func(i int) string { return resourceJSON(1_000_000+i, more) })
		}),
		added("resources with many distinct values", func(g *Gen) string {
			return each(g.upTo(1, 2_000), ",", func(i int) string {
				return resourceJSON(2_000_000+i, each(100, "", func(j int) string { return fmt.Sprintf(`,"p%d":"%d-%d-%d"`, j, i, j, g.Int64()) }))
			})
		}),
		added("distinct properties", func(g *Gen) string {
			return each(g.upTo(1, 1_000), ",", func(i int) string {
				return resourceJSON(3_000_000+i, each(200, "", func(j int) string { return fmt.Sprintf(`,"p%d_%d":1`, i, j) }))
			})
		}),
		added("one resource again and again", func(g *Gen) string {
			return each(g.upTo(1, 100_000), ",", func(int) string { return resourceJSON(1, "") })
		}),
		added("malformed resources", func(g *Gen) string {
			bad := pick(g, "{}", "null", "1", `{"uid":1}`, `{"uid":"other/1"}`, `{"UID":"a","uid":"b","Uid":"c"}`, `{"uid":"`+BareCluster+`/1","properties":[]}`, `{"properties":{"name":{}}}`)
			return each(g.upTo(1, 500_000), ",", func(int) string { return bad })
		}),
		{"report", "edges", func(g *Gen) Input {
			n := g.upTo(1, 200_000)
			edge := func(i int) string {
				return fmt.Sprintf(`{"SourceUID":"%s/%d","DestUID":"%s/%d","EdgeType":"%s"}`, BareCluster, i%100, BareCluster, i*7%100, pick(g, "a", "b", "t"+strconv.Itoa(i)))
			}
			return report(g, []byte(`{"addEdges":[`+each(n, ",", edge)+`],"deleteEdges":[`+each(n/10, ",", edge)+`]}`))
		}},
		{"report", "deletions", func(g *Gen) Input {
			return report(g, []byte(`{"deleteResources":[`+each(g.upTo(1, 300_000), ",", func(i int) string { return fmt.Sprintf(`{"uid":"%s/x%d"}`, BareCluster, i) })+`]}`))
		}},
		{"report", "unknown fields", func(g *Gen) Input {
			return report(g, []byte(`{`+each(g.upTo(1, 300_000), ",", func(i int) string { return fmt.Sprintf(`"f%d":%s`, i, pick(g, "1", "[[]]", `"a"`)) })+`}`))
		}},
		{"report", "compressed", func(g *Gen) Input {
			// A decompression bomb.
			size := g.upTo(1, 600) << 20
			body := compressed([]byte(`{"addResources":[` + strings.Repeat(pick(g, " ", "[", "1,", `{"uid":"a"},`), size/8) + `]}`))
			return Input{Requests: []Request{{As: Agent, Method: "POST", Path: syncPath, Gzip: true, Body: body}}}
		}},
		{"report", "not well compressed", func(g *Gen) Input {
			body := []byte(strings.Repeat(pick(g, "\x1f\x8b\x08\x00", "\x00", "{}"), g.upTo(1, 100_000)))
			return Input{Requests: []Request{{As: Agent, Method: "POST", Path: aggregatorPath, Gzip: true, Body: body}}}
		}},
	}
}
