package hostile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// requestSize is about the maximum size of a request, so that generators reach the limit.
const requestSize = 3_000_000

// manifests returns a ManifestWork of the manifests, which are JSON.
func manifests(g *Gen, of string) Input {
	input := create(Tenant, worksPath, "ManifestWork", "", fmt.Sprintf(`,"spec":{"deleteOption":{"propagationPolicy":%q},"workload":{"manifests":[%s]}}`, pick(g, "Orphan", "Foreground"), of))
	input.Reported = []string{"Applied"}
	return input
}

// configMapJSON returns a ConfigMap with additional fields of the metadata, and additional fields, in JSON.
func configMapJSON(name, metadata, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q%s}%s}`, Namespace, name, metadata, more)
}

// yamlAliases returns a YAML document of n lists, each with eight references to the list before it.
func yamlAliases(n int) string {
	return "a0: &a0 [x]\n" + each(n, "", func(i int) string {
		return fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 8), ","))
	})
}

func manifestClasses() []Class {
	all := func(name string, generate func(*Gen) string) Class {
		return Class{"manifest", name, func(g *Gen) Input { return manifests(g, generate(g)) }}
	}
	one := func(name string, generate func(*Gen) string) Class {
		return all(name, func(g *Gen) string { return configMapJSON(object, "", ","+generate(g)) })
	}
	described := func(name string, generate func(*Gen) string) Class {
		return all(name, func(g *Gen) string { return configMapJSON(object, ","+generate(g), "") })
	}
	return []Class{
		one("nesting", func(g *Gen) string {
			return pick(g, `"data":`, `"x":`) + around(g.upTo(1, 400_000), pick(g, `{"a":¦1¦}`, "[¦¦]"))
		}),
		one("long values", func(g *Gen) string {
			return `"data":{"k":"` + g.long(requestSize/7, "a", `\u0000`, `\\`, "\U0001F600", `\u202e`, `\ud800`) + `"}`
		}),
		one("many keys", func(g *Gen) string {
			return pick(g, `"data"`, `"binaryData"`, `"unknown"`, `"immutable"`) + ":{" + g.list(150_000, ",", `"k%":"v"`, `"k%":"YQ=="`, `"k%":{}`, `"k%":1`, `"k%":null`) + "}"
		}),
		one("the same key again", func(g *Gen) string {
			return g.list(100_000, ",", `"data":{"a":"b"}`, `"kind":"Secret"`, `"metadata":{"name":"x"}`, `"spec":{}`)
		}),
		one("numbers", func(g *Gen) string {
			return `"data":{"k":` + pick(g, "1e", "-", "0.", "1", "1e-") + g.long(300_000, "9", "0") + `}`
		}),
		described("labels and annotations", func(g *Gen) string {
			return pick(g, `"labels"`, `"annotations"`) + ":{" + g.list(100_000, ",", `"k%":"v"`, `"a.b/k%":"v"`, `"A_%":"v"`) + "}"
		}),
		described("owners and managed fields", func(g *Gen) string {
			return pick(g,
				`"ownerReferences":[`+g.list(10_000, ",", `{"apiVersion":"v1","kind":"A","name":"a","uid":"%"}`)+`]`,
				`"finalizers":[`+g.list(10_000, ",", `"a.b/f%"`)+`]`,
				`"managedFields":[`+g.list(5_000, ",", `{"manager":"m%","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}`)+`]`)
		}),
		all("names", func(g *Gen) string {
			long := g.long(100_000, "a", "a.", "../", "%00", "\U0001F600", "A")
			return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q}}`, pick(g, "v1", long), pick(g, "ConfigMap", long), pick(g, Namespace, long), pick(g, object, long))
		}),
		all("lists", func(g *Gen) string {
			items := g.list(20_000, ",", configMapJSON(object+"%", "", ""))
			return pick(g, `{"apiVersion":"v1","kind":"List","items":[`+items+`]}`, `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"name":"a"},"items":[`+items+`]}`,
				around(g.upTo(1, 1_000), `{"apiVersion":"v1","kind":"List","metadata":{"name":"a"},"items":[¦¦]}`))
		}),
		all("many manifests", func(g *Gen) string {
			return g.list(3_000, ",", `{"apiVersion":"g%.example.com/v1","kind":"K%","metadata":{"name":"a"}}`, configMapJSON("absent", "", ""))
		}),
		all("many objects", func(g *Gen) string { return g.list(300, ",", configMapJSON(object+"-many%", "", "")) }),
		all("what is no object", func(g *Gen) string { return g.mix(200_000, ",", "null", "1", "[]", `"a"`, "{}", `{"kind":1}`, "true") }),
		all("kinds that validate at length", func(g *Gen) string {
			return pick(g,
				`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"hostile"},"rules":[`+g.list(500, ",", `{"apiGroups":["g%"],"resources":["r%"],"verbs":["get"]}`)+`]}`,
				`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"hostile-objects","name":"hostile"},"spec":{"ports":[`+g.list(500, ",", `{"name":"p%","port":1%}`)+`]}}`,
				`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"namespace":"hostile-objects","name":"hostile"},"spec":{"hard":{`+g.list(500, ",", `"count/a%":"1e`+g.long(500, "9")+`"`)+`}}}`,
				`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.hostile.example.com"},"spec":{"group":"hostile.example.com","scope":"Cluster","names":{"kind":"A","plural":"as"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":`+
					around(g.upTo(1, 50), `{"type":"object","properties":{"a":¦{"type":"string"}¦}}`)+`}}]}}`)
		}),
		{"manifest", "configs and wildcards", func(g *Gen) Input {
			var configs []any
			for range g.upTo(1, 10_000) {
				configs = append(configs, fields{"resourceIdentifier": fields{"resource": "configmaps", "name": g.long(60, "*", "a*", "*a", "h*"), "namespace": "*"}, "feedbackScrapeType": "Poll"})
			}
			var objects []any
			for i := range g.upTo(1, 200) {
				objects = append(objects, fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"namespace": Namespace, "name": strings.Repeat("a", 200) + strconv.Itoa(i)}})
			}
			return work(fields{"workload": fields{"manifests": objects}, "manifestConfigs": configs})
		}},
		{"manifest", "one long wildcard", func(g *Gen) Input {
			return work(simple(fields{"manifestConfigs": []any{
				fields{"resourceIdentifier": fields{"resource": "configmaps", "name": g.long(200_000, "*", "h*", "*e"), "namespace": g.long(200_000, "*")}},
			}}))
		}},
		{"manifest", "orphaning rules", func(g *Gen) Input {
			var rules []any
			for i := range g.upTo(1, 20_000) {
				rules = append(rules, fields{"resource": "configmaps", "namespace": Namespace, "name": "a" + strconv.Itoa(i)})
			}
			return work(simple(fields{"deleteOption": fields{"propagationPolicy": "SelectivelyOrphan", "selectivelyOrphans": fields{"orphaningRules": rules}}}))
		}},
		{"patch", "of a ManifestWork", func(g *Gen) Input {
			const manifests = "/spec/workload/manifests"
			const doubling = `{"op":"copy","from":"` + manifests + `","path":"` + manifests + `/-"}`
			patch := []struct{ kind, query, body string }{
				{"application/json-patch+json", "", "[" + g.mix(20_000, ",", `{"op":"test","path":"/metadata/name","value":"hostile"}`, `{"op":"add","path":"/metadata/annotations/k%","value":"v"}`, `{"op":"copy","from":"/spec","path":"/spec/workload"}`, `{"op":"copy","from":"`+manifests+`","path":"`+manifests+`/0"}`, `{"op":"move","from":"/metadata/a","path":"/metadata/b"}`) + "]"},
				{"application/json-patch+json", "", "[" + strings.Repeat(doubling+",", min(g.upTo(1, 20_000), 60)-1) + doubling + "]"},
				{"application/merge-patch+json", "", `{"spec":` + around(g.upTo(1, 20_000), `{"a":¦1¦}`) + `}`},
				{"application/apply-patch+yaml", "&force=true", string(body(worksPath, "ManifestWork", "", `,"spec":{"manifestConfigs":[`+g.list(20_000, ",", `{"resourceIdentifier":{"resource":"configmaps","name":"a%"}}`)+`]}`))},
				{"application/apply-patch+yaml", "&force=true", yamlAliases(min(g.upTo(1, 20_000), 30))},
			}[g.IntN(5)]
			input := work(fields{"workload": fields{"manifests": []any{configMap(data(g))}}})
			input.Requests = append(input.Requests[1:], Request{As: Tenant, Method: http.MethodPatch, Path: worksPath + "/" + object + "?fieldManager=hostile" + patch.query, ContentType: patch.kind, Body: []byte(patch.body)})
			return input
		}},
	}
}

// grantee is the subject of the ClusterPermissions.
const grantee = `"subject":{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"g"}`

// permission returns a ClusterPermission with a spec in JSON. It adds a binding if the spec has none.
func permission(of string) Input {
	switch {
	case strings.Contains(of, "Binding"):
	case strings.Contains(of, `"clusterRole"`):
		of += `,"clusterRoleBinding":{` + grantee + `}`
	default:
		of += `,"roleBindings":[{"namespace":"n0","roleRef":{"kind":"Role"},` + grantee + `}]`
	}
	return create(Tenant, permissionsPath, "ClusterPermission", "", `,"spec":{`+of+`}`)
}

// names returns a list of names in JSON.
func (g *Gen) names(most int, prefix string) string {
	return "[" + g.list(most, ",", `"`+prefix+`%"`) + "]"
}

func permissionClasses() []Class {
	of := func(name string, generate func(*Gen) string) Class {
		return Class{"clusterpermission", name, func(g *Gen) Input { return permission(generate(g)) }}
	}
	// The tenant has these permissions, so granting them is no escalation.
	const held = `"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]`
	return []Class{
		of("products of rules", func(g *Gen) string {
			return fmt.Sprintf(`"clusterRole":{"rules":[{"apiGroups":%s,"resources":%s,"verbs":%s,"resourceNames":%s}]}`, g.names(3_000, "g"), g.names(3_000, "r"), g.names(3_000, "v"), g.names(1_000, "n"))
		}),
		of("many rules", func(g *Gen) string {
			return `"clusterRole":{"rules":[` + g.mix(20_000, ",", `{`+held+`}`, `{"apiGroups":["g%","*"],"resources":["r%","*/x"],"verbs":["get","*"]}`, `{"nonResourceURLs":["/a*"],"verbs":["get"]}`) + `]}`
		}),
		of("many roles", func(g *Gen) string {
			return `"roles":[` + g.list(5_000, ",", `{"namespace":"n%","rules":[{`+held+`}]}`) + `],"roleBindings":[` + g.list(5_000, ",", `{"namespace":"n%","roleRef":{"kind":"Role"},`+grantee+`}`) + `]`
		}),
		of("many bindings", func(g *Gen) string {
			return `"roleBindings":[` + each(g.upTo(1, 10_000), ",", func(i int) string {
				return fmt.Sprintf(`{"name":"b%d","namespace":"n%d","roleRef":{"kind":"ClusterRole","name":"r%d"},%s}`, i, i%7, i, grantee)
			}) + `]`
		}),
		of("many subjects", func(g *Gen) string {
			return `"clusterRole":{"rules":[{` + held + `}]},"clusterRoleBinding":{"subjects":[` + each(g.upTo(1, 20_000), ",", func(i int) string {
				return fmt.Sprintf(`{"kind":"%s","apiGroup":"%s","name":"u%d","namespace":"n"}`, pick(g, "User", "Group", "ServiceAccount"), pick(g, "", "rbac.authorization.k8s.io", "authentication.open-cluster-management.io"), i)
			}) + `]}`
		}),
		of("namespace selectors", func(g *Gen) string {
			return `"roles":[` + each(g.upTo(1, 300), ",", func(int) string {
				return `{"rules":[{` + held + `}],"namespaceSelector":{"matchExpressions":[` + g.mix(300, ",",
					`{"key":"k","operator":"NotIn","values":`+g.names(50, "v")+`}`, `{"key":"k%","operator":"DoesNotExist"}`, `{"key":"k","operator":"Bad"}`) + `]}}`
			}) + `]`
		}),
		of("selectors times roles", func(g *Gen) string {
			return `"roleBindings":[` + g.list(2_000, ",", `{"name":"b%","namespaceSelector":{},"roleRef":{"kind":"ClusterRole","name":"view"},`+grantee+`}`) + `]`
		}),
		of("role references", func(g *Gen) string {
			return `"roleRefs":[` + g.mix(10_000, ",", `{"kind":"ClusterRole","name":"admin"}`, `{"kind":"ClusterRole","name":"r%"}`, `{"kind":"Role","name":"r%","namespace":"n%"}`) + `]`
		}),
		of("long names", func(g *Gen) string {
			long := g.long(200_000, "a", "system:", "\U0001F600", "../")
			return fmt.Sprintf(`"clusterRoleBinding":{"name":%q,"roleRef":{"kind":"ClusterRole","name":%q},"subject":{"kind":"User","name":%q}}`, long, long, long)
		}),
	}
}

func otherClasses() []Class {
	described := func(g *Gen) string {
		return "," + pick(g, `"labels"`, `"annotations"`) + ":{" + g.list(100_000, ",", `"k%":"v"`) + "}"
	}
	account := func(metadata, of string) Input {
		return create(Tenant, accountsPath, "ManagedServiceAccount", metadata, `,"spec":{`+of+`}`)
	}
	cluster := func(name string, generate func(*Gen) string) Class {
		return Class{"managedcluster", name, func(g *Gen) Input {
			return once(Agent, http.MethodPatch, clustersPath+"/"+BareCluster+"/status", []byte(`{"status":{`+generate(g)+`}}`))
		}}
	}
	signing := func(as Identity, block []byte) Input {
		return create(as, "/apis/certificates.k8s.io/v1/certificatesigningrequests", "CertificateSigningRequest", `,"labels":{"open-cluster-management.io/cluster-name":"`+BareCluster+`"}`, spec(fields{
			"signerName": "kubernetes.io/kube-apiserver-client", "usages": []string{"digital signature", "client auth"}, "request": base64.StdEncoding.EncodeToString(block),
		}))
	}
	return []Class{
		{"managedserviceaccount", "labels and annotations", func(g *Gen) Input { return account(described(g), `"rotation":{}`) }},
		{"managedserviceaccount", "spec", func(g *Gen) Input {
			return account("", fmt.Sprintf(`"ttlSecondsAfterCreation":%s,"rotation":{"enabled":true,"validity":%q},"audiences":%s`,
				pick(g, "0", "2147483647", "1e9", g.long(100_000, "9")), pick(g, "8640h", "1ns", g.long(100_000, "1h")), g.names(100_000, "a")))
		}},
		{"clusternamespace", "labels", func(g *Gen) Input { return create(Agent, namespacesPath, "ClusterNamespace", described(g), "") }},
		{"clusternamespace", "many", func(g *Gen) Input {
			// The objects are not deleted: the total per cluster is bounded.
			labels := g.list(14_000, ",", `"k%":"v"`)
			var input Input
			for i := range g.upTo(1, 60) {
				input.Requests = append(input.Requests, Request{As: Agent, Method: http.MethodPost, Path: namespacesPath, Body: fmt.Appendf(nil, `{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterNamespace","metadata":{"name":"many%d-%d","labels":{%s}}}`, g.Uint32(), i, labels)})
			}
			return input
		}},
		cluster("claims", func(g *Gen) string {
			return `"clusterClaims":[` + g.list(50_000, ",", `{"name":"c%","value":"%"}`) + `]`
		}),
		cluster("long claims", func(g *Gen) string {
			return `"clusterClaims":[{"name":"c","value":"` + g.long(1_000_000, "v") + `"}],"version":{"kubernetes":"` + g.long(1_000_000, "v") + `"}`
		}),
		cluster("conditions", func(g *Gen) string {
			return `"conditions":[` + g.list(10_000, ",", `{"type":"T%","status":"True","reason":"A","message":"m","lastTransitionTime":"2020-01-01T00:00:00Z"}`) + `]`
		}),
		cluster("quantities", func(g *Gen) string {
			n := g.upTo(1, 300_000)
			digits := func(most int) string { return strings.Repeat("9", min(n, most)) }
			return pick(g, `"capacity"`, `"allocatable"`) + ":{" + each(g.upTo(1, 100), ",", func(i int) string {
				return fmt.Sprintf(`"r%d":"%s"`, i, pick(g, digits(1+30_000/(i+1)), "1e"+digits(9), "1e-"+digits(9), "0."+digits(1000)))
			}) + "}"
		}),
		{"managedcluster", "applications", func(g *Gen) Input {
			return create(Applicant, clustersPath, "ManagedCluster", described(g), fmt.Sprintf(`,"spec":{"managedClusterClientConfigs":[%s],"taints":[%s]}`,
				g.list(10_000, ",", `{"url":"https://a%","caBundle":"YQ=="}`), g.list(10_000, ",", `{"key":"k%","effect":"NoSelect"}`)))
		}},
		{"arn", "claims", func(g *Gen) Input {
			arn := pick(g, "arn:aws:eks:us-west-2:123456789012:cluster/"+g.long(300_000, "a", ":", "/", "*", "${aws:username}", "\U0001F600", "\"", "\\"), g.long(300_000, "arn:", ":", "arn:aws:eks:", "/"))
			return once(Applicant, http.MethodPost, "/apis/register.open-cluster-management.io/v1alpha1/managedclusters/"+BareCluster+"/irsa", encode(fields{
				"apiVersion": "register.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterIRSA", "spec": fields{"managedClusterARN": arn},
			}))
		}},
		{"arn", "annotations", func(g *Gen) Input {
			value := g.long(10_000, "arn:aws:iam::123456789012:role/", ":", "a", "/", "\"")
			return create(Applicant, clustersPath, "ManagedCluster", `,"annotations":`+string(encode(fields{
				"agent.open-cluster-management.io/managed-cluster-iam-role-suffix": value, "agent.open-cluster-management.io/managed-cluster-arn": value, "agent.open-cluster-management.io/hub-cluster-arn": value,
			})), "")
		}},
		{"csr", "subjects and names", func(g *Gen) Input {
			key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
			if err != nil {
				panic(err) // the machine has no random numbers
			}
			repeated := func(text string) []string { return slices.Repeat([]string{text}, g.upTo(1, 20_000)) }
			template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: g.long(100_000, "a"), Organization: repeated("system:open-cluster-management:" + BareCluster)}, DNSNames: repeated("a.b")}
			der, err := x509.CreateCertificateRequest(cryptorand.Reader, template, key)
			if err != nil {
				panic(err)
			}
			return signing(pick(g, Agent, Applicant), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		}},
		{"csr", "malformed", func(g *Gen) Input {
			junk := []byte(g.long(300_000, "\x30\x80", "\x30\x82\xff\xff", "\x00", "\x30\x84\x7f\xff\xff\xff", "a"))
			return signing(pick(g, Agent, Applicant), pick(g, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: junk}), junk, []byte(g.long(20_000, "-----BEGIN CERTIFICATE REQUEST-----\n"))))
		}},
		{"body", "JSON of no kind", func(g *Gen) Input {
			input := once(Tenant, http.MethodPost, pick(g, worksPath, permissionsPath, accountsPath, searchPath+"/searches", searchPath+"/graphql"), []byte(g.long(requestSize/6, "[", `{"a":`, `"`, "1", " ", "\x00", "{}", "\xef\xbb\xbf")))
			input.Requests[0].ContentType = pick(g, "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "text/plain")
			return input
		}},
		{"body", "YAML", func(g *Gen) Input {
			input := once(Tenant, http.MethodPost, pick(g, worksPath, permissionsPath, accountsPath), []byte(pick(g, yamlAliases(min(g.upTo(1, 100_000), 40)), g.long(100_000, "- ")+"a", "a: &a\n  b: *a\n", "a: |\n"+g.long(100_000, "  a\n"),
				g.long(100_000, "? ", "{a: ", "a: b\n", "!!map ", "---\n"), g.long(100_000, "? ", "{a: ", "a: b\n", "!!map ", "---\n"))))
			input.Requests[0].ContentType = "application/yaml"
			return input
		}},
	}
}
