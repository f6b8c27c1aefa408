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
	"strconv"
	"strings"
)

// requestSize is about the maximum size of a request, so that generators reach the limit.
const requestSize = 3_000_000

// manifests returns a ManifestWork of the manifests, which are JSON.
func manifests(g *Gen, of string) Input {
	input := create(Tenant, worksPath, fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q},"spec":{"deleteOption":{"propagationPolicy":%q},"workload":{"manifests":[%s]}}}`,
		object, pick(g, "Orphan", "Foreground"), of))
	input.Reported = []string{"Applied"}
	return input
}

func mapOf(n int, key, value string) string {
	return "{" + each(n, ",", func(i int) string { return fmt.Sprintf(`"%s%d":%s`, key, i, value) }) + "}"
}

// configMapJSON returns a ConfigMap with additional fields in JSON.
func configMapJSON(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q}%s}`, Namespace, name, more)
}

func manifestClasses() []Class {
	one := func(name string, generate func(*Gen) string) Class {
		return Class{"manifest", name, func(g *Gen) Input { return manifests(g, generate(g)) }}
	}
	return []Class{
		one("nesting", func(g *Gen) string {
			n := g.upTo(1, 400_000)
			if g.IntN(2) == 0 {
				return configMapJSON(object, `,"data":`+strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n))
			}
			return configMapJSON(object, `,"x":`+strings.Repeat("[", n)+strings.Repeat("]", n))
		}),
		one("long values", func(g *Gen) string {
			return configMapJSON(object, `,"data":{"k":"`+strings.Repeat(pick(g, "a", `\u0000`, `\\`, "\U0001F600", `\u202e`, `\ud800`), g.upTo(1, requestSize/7))+`"}`)
		}),
		one("many keys", func(g *Gen) string {
			return configMapJSON(object, `,"`+pick(g, "data", "binaryData", "unknown", "immutable")+`":`+mapOf(g.upTo(1, 150_000), "k", pick(g, `"v"`, `"YQ=="`, "{}", "1", "null")))
		}),
		one("the same key again", func(g *Gen) string {
			return configMapJSON(object, strings.Repeat(pick(g, `,"data":{"a":"b"}`, `,"kind":"Secret"`, `,"metadata":{"name":"x"}`, `,"spec":{}`), g.upTo(1, 100_000)))
		}),
		one("numbers", func(g *Gen) string {
			return configMapJSON(object, `,"data":{"k":`+pick(g, "1e", "-", "0.", "1", "1e-")+strings.Repeat(pick(g, "9", "0"), g.upTo(1, 300_000))+`}`)
		}),
		one("labels and annotations", func(g *Gen) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q,%q:%s}}`, Namespace, object,
				pick(g, "labels", "annotations"), mapOf(g.upTo(1, 100_000), pick(g, "k", "a.b/k", "A_"), `"v"`))
		}),
		one("names", func(g *Gen) string {
			long := strings.Repeat(pick(g, "a", "a.", "../", "%00", "\U0001F600", "A"), g.upTo(1, 100_000))
			return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q}}`, pick(g, "v1", long), pick(g, "ConfigMap", long), pick(g, Namespace, long), pick(g, object, long))
		}),
		one("owners and managed fields", func(g *Gen) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q,%s}}`, Namespace, object, pick(g,
				`"ownerReferences":[`+each(g.upTo(1, 10_000), ",", func(i int) string { return fmt.Sprintf(`{"apiVersion":"v1","kind":"A","name":"a","uid":"%d"}`, i) })+`]`,
				`"finalizers":[`+each(g.upTo(1, 10_000), ",", func(i int) string { return fmt.Sprintf(`"a.b/f%d"`, i) })+`]`,
				`"managedFields":[`+each(g.upTo(1, 5_000), ",", func(i int) string {
					return fmt.Sprintf(`{"manager":"m%d","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}`, i)
				})+`]`))
		}),
		one("lists", func(g *Gen) string {
			n := g.upTo(1, 20_000)
			items := each(n, ",", func(i int) string { return configMapJSON(object+strconv.Itoa(i), "") })
			return pick(g, `{"apiVersion":"v1","kind":"List","items":[`+items+`]}`, `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"name":"a"},"items":[`+items+`]}`,
				strings.Repeat(`{"apiVersion":"v1","kind":"List","metadata":{"name":"a"},"items":[`, n/20+1)+strings.Repeat("]}", n/20+1))
		}),
		one("many manifests", func(g *Gen) string {
			unknown := g.IntN(2) == 0
			return each(g.upTo(1, 3_000), ",", func(i int) string {
				if unknown {
					return fmt.Sprintf(`{"apiVersion":"g%d.example.com/v1","kind":"K%d","metadata":{"name":"a"}}`, i, i)
				}
				return configMapJSON("absent", "")
			})
		}),
		one("many objects", func(g *Gen) string {
			return each(g.upTo(1, 300), ",", func(i int) string { return configMapJSON(object+"-many"+strconv.Itoa(i), "") })
		}),
		one("what is no object", func(g *Gen) string {
			return each(g.upTo(1, 200_000), ",", func(int) string { return pick(g, "null", "1", "[]", `"a"`, "{}", `{"kind":1}`, "true") })
		}),
		one("kinds that validate at length", func(g *Gen) string {
			n := g.upTo(1, 500)
			return pick(g,
				`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"hostile"},"rules":[`+each(n, ",", func(i int) string {
					return fmt.Sprintf(`{"apiGroups":["g%d"],"resources":["r%d"],"verbs":["get"]}`, i, i)
				})+`]}`,
				`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"hostile-objects","name":"hostile"},"spec":{"ports":[`+each(n, ",", func(i int) string { return fmt.Sprintf(`{"name":"p%d","port":%d}`, i, i+1) })+`]}}`,
				`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"namespace":"hostile-objects","name":"hostile"},"spec":{"hard":`+mapOf(n, "count/a", `"1e`+strings.Repeat("9", n)+`"`)+`}}`,
				`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.hostile.example.com"},"spec":{"group":"hostile.example.com","scope":"Cluster","names":{"kind":"A","plural":"as"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":`+
					strings.Repeat(`{"type":"object","properties":{"a":`, n/10)+`{"type":"string"}`+strings.Repeat(`}}`, n/10)+`}}]}}`)
		}),
		{"manifest", "configs and wildcards", func(g *Gen) Input {
			var configs []any
			for range g.upTo(1, 10_000) {
				configs = append(configs, fields{"resourceIdentifier": fields{"resource": "configmaps", "name": strings.Repeat(pick(g, "*", "a*", "*a", "h*"), 1+g.IntN(60)), "namespace": "*"}, "feedbackScrapeType": "Poll"})
			}
			var objects []any
			for i := range g.upTo(1, 200) {
				objects = append(objects, fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"namespace": Namespace, "name": strings.Repeat("a", 200) + strconv.Itoa(i)}})
			}
			return work(fields{"workload": fields{"manifests": objects}, "manifestConfigs": configs})
		}},
		{"manifest", "one long wildcard", func(g *Gen) Input {
			return work(fields{"workload": fields{"manifests": []any{configMap(fields{"a": "b"})}}, "manifestConfigs": []any{
				fields{"resourceIdentifier": fields{"resource": "configmaps", "name": strings.Repeat(pick(g, "*", "h*", "*e"), g.upTo(1, 200_000)), "namespace": strings.Repeat("*", g.upTo(1, 200_000))}},
			}})
		}},
		{"manifest", "orphaning rules", func(g *Gen) Input {
			var rules []any
			for i := range g.upTo(1, 20_000) {
				rules = append(rules, fields{"resource": "configmaps", "namespace": Namespace, "name": "a" + strconv.Itoa(i)})
			}
			return work(fields{"workload": fields{"manifests": []any{configMap(fields{"a": "b"})}}, "deleteOption": fields{"propagationPolicy": "SelectivelyOrphan", "selectivelyOrphans": fields{"orphaningRules": rules}}})
		}},
		{"patch", "of a ManifestWork", func(g *Gen) Input {
			input := work(fields{"workload": fields{"manifests": []any{configMap(data(g))}}})
			n := g.upTo(1, 20_000)
			kind, body := "application/json-patch+json", "["+each(n, ",", func(i int) string {
				return pick(g, `{"op":"test","path":"/metadata/name","value":"hostile"}`, fmt.Sprintf(`{"op":"add","path":"/metadata/annotations/k%d","value":"v"}`, i), `{"op":"copy","from":"/spec","path":"/spec/workload"}`, `{"op":"copy","from":"/spec/workload/manifests","path":"/spec/workload/manifests/0"}`, `{"op":"move","from":"/metadata/a","path":"/metadata/b"}`)
			})+"]"
			switch g.IntN(4) {
			case 0:
				body = "[" + each(min(n, 60), ",", func(int) string {
					return `{"op":"copy","from":"/spec/workload/manifests","path":"/spec/workload/manifests/-"}`
				}) + "]"
			case 1:
				kind, body = "application/merge-patch+json", `{"spec":`+strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)+`}`
			case 2:
				kind, body = "application/apply-patch+yaml", `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"hostile"},"spec":{"manifestConfigs":[`+each(n, ",", func(i int) string {
					return fmt.Sprintf(`{"resourceIdentifier":{"resource":"configmaps","name":"a%d"}}`, i)
				})+`]}}`
			case 3:
				kind, body = "application/apply-patch+yaml", "a0: &a0 [x]\n"+each(min(n, 30), "", func(i int) string {
					return fmt.Sprintf("a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i)
				})
			}
			path := worksPath + "/" + object + "?fieldManager=hostile"
			if strings.Contains(kind, "apply") {
				path += "&force=true"
			}
			input.Requests = append(input.Requests[1:], Request{As: Tenant, Method: "PATCH", Path: path, ContentType: kind, Body: []byte(body)})
			return input
		}},
	}
}

// permission returns a ClusterPermission with a spec in JSON. It adds a binding if the spec has none.
func permission(spec string) Input {
	if !strings.Contains(spec, "Binding") {
		binding := `"clusterRoleBinding":{"subject":{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"g"}}`
		if !strings.Contains(spec, `"clusterRole"`) {
			binding = `"roleBindings":[{"namespace":"n0","roleRef":{"kind":"Role"},"subject":{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"g"}}]`
		}
		spec += "," + binding
	}
	return create(Tenant, permissionsPath, fmt.Appendf(nil, `{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterPermission","metadata":{"name":%q},"spec":{%s}}`, object, spec))
}

func names(n int, prefix string) string {
	return "[" + each(n, ",", func(i int) string { return fmt.Sprintf(`"%s%d"`, prefix, i) }) + "]"
}

func permissionClasses() []Class {
	of := func(name string, generate func(*Gen) string) Class {
		return Class{"clusterpermission", name, func(g *Gen) Input { return permission(generate(g)) }}
	}
	// The tenant has these permissions, so granting them is no escalation.
	held := `"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]`
	subject := `"subject":{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"g"}`
	return []Class{
		of("products of rules", func(g *Gen) string {
			return fmt.Sprintf(`"clusterRole":{"rules":[{"apiGroups":%s,"resources":%s,"verbs":%s,"resourceNames":%s}]}`, names(g.upTo(1, 3_000), "g"), names(g.upTo(1, 3_000), "r"), names(g.upTo(1, 3_000), "v"), names(g.upTo(1, 1_000), "n"))
		}),
		of("many rules", func(g *Gen) string {
			return `"clusterRole":{"rules":[` + each(g.upTo(1, 20_000), ",", func(i int) string {
				return pick(g, `{`+held+`}`, fmt.Sprintf(`{"apiGroups":["g%d","*"],"resources":["r%d","*/x"],"verbs":["get","*"]}`, i, i), `{"nonResourceURLs":["/a*"],"verbs":["get"]}`)
			}) + `]}`
		}),
		of("many roles", func(g *Gen) string {
			n := g.upTo(1, 5_000)
			return `"roles":[` + each(n, ",", func(i int) string { return fmt.Sprintf(`{"namespace":"n%d","rules":[{%s}]}`, i, held) }) + `],"roleBindings":[` +
				each(n, ",", func(i int) string { return fmt.Sprintf(`{"namespace":"n%d","roleRef":{"kind":"Role"},%s}`, i, subject) }) + `]`
		}),
		of("many bindings", func(g *Gen) string {
			return `"roleBindings":[` + each(g.upTo(1, 10_000), ",", func(i int) string {
				return fmt.Sprintf(`{"name":"b%d","namespace":"n%d","roleRef":{"kind":"ClusterRole","name":"r%d"},%s}`, i, i%7, i, subject)
			}) + `]`
		}),
		of("many subjects", func(g *Gen) string {
			return `"clusterRole":{"rules":[{` + held + `}]},"clusterRoleBinding":{"subjects":[` + each(g.upTo(1, 20_000), ",", func(i int) string {
				return fmt.Sprintf(`{"kind":"%s","apiGroup":"%s","name":"u%d","namespace":"n"}`, pick(g, "User", "Group", "ServiceAccount"), pick(g, "", "rbac.authorization.k8s.io", "authentication.open-cluster-management.io"), i)
			}) + `]}`
		}),
		of("namespace selectors", func(g *Gen) string {
			return `"roles":[` + each(g.upTo(1, 300), ",", func(i int) string {
				return `{"rules":[{` + held + `}],"namespaceSelector":{"matchExpressions":[` + each(g.upTo(1, 300), ",", func(j int) string {
					return pick(g, `{"key":"k","operator":"NotIn","values":`+names(1+g.IntN(50), "v")+`}`, fmt.Sprintf(`{"key":"k%d","operator":"DoesNotExist"}`, j), `{"key":"k","operator":"Bad"}`)
				}) + `]}}`
			}) + `]`
		}),
		of("selectors times roles", func(g *Gen) string {
			return `"roleBindings":[` + each(g.upTo(1, 2_000), ",", func(i int) string {
				return fmt.Sprintf(`{"name":"b%d","namespaceSelector":{},"roleRef":{"kind":"ClusterRole","name":"view"},%s}`, i, subject)
			}) + `]`
		}),
		of("role references", func(g *Gen) string {
			return `"roleRefs":[` + each(g.upTo(1, 10_000), ",", func(i int) string {
				return pick(g, `{"kind":"ClusterRole","name":"admin"}`, fmt.Sprintf(`{"kind":"ClusterRole","name":"r%d"}`, i), fmt.Sprintf(`{"kind":"Role","name":"r%d","namespace":"n%d"}`, i, i))
			}) + `]`
		}),
		of("long names", func(g *Gen) string {
			long := strings.Repeat(pick(g, "a", "system:", "\U0001F600", "../"), g.upTo(1, 200_000))
			return fmt.Sprintf(`"clusterRoleBinding":{"name":%q,"roleRef":{"kind":"ClusterRole","name":%q},"subject":{"kind":"User","name":%q}}`, long, long, long)
		}),
	}
}

func otherClasses() []Class {
	meta := func(g *Gen) string {
		return fmt.Sprintf(`"metadata":{"name":%q,%q:%s}`, object, pick(g, "labels", "annotations"), mapOf(g.upTo(1, 100_000), "k", `"v"`))
	}
	status := func(g *Gen, body string) Input {
		return Input{Requests: []Request{{As: Agent, Method: "PATCH", Path: clustersPath + "/" + BareCluster + "/status", ContentType: "application/merge-patch+json", Body: []byte(`{"status":{` + body + `}}`)}}}
	}
	request := func(as Identity, block []byte) Input {
		return create(as, "/apis/certificates.k8s.io/v1/certificatesigningrequests", encode(fields{
			"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
			"metadata": fields{"name": object, "labels": fields{"open-cluster-management.io/cluster-name": BareCluster}},
			"spec":     fields{"signerName": "kubernetes.io/kube-apiserver-client", "usages": []string{"digital signature", "client auth"}, "request": base64.StdEncoding.EncodeToString(block)},
		}))
	}
	return []Class{
		{"managedserviceaccount", "labels and annotations", func(g *Gen) Input {
			return create(Tenant, accountsPath, []byte(`{"apiVersion":"authentication.open-cluster-management.io/v1beta1","kind":"ManagedServiceAccount",`+meta(g)+`,"spec":{"rotation":{}}}`))
		}},
		{"managedserviceaccount", "spec", func(g *Gen) Input {
			return create(Tenant, accountsPath, fmt.Appendf(nil, `{"apiVersion":"authentication.open-cluster-management.io/v1beta1","kind":"ManagedServiceAccount","metadata":{"name":%q},"spec":{"ttlSecondsAfterCreation":%s,"rotation":{"enabled":true,"validity":%q},"audiences":%s}}`,
				object, pick(g, "0", "2147483647", "1e9", strings.Repeat("9", g.upTo(1, 100_000))), pick(g, "8640h", "1ns", strings.Repeat("1h", g.upTo(1, 100_000))), names(g.upTo(1, 100_000), "a")))
		}},
		{"clusternamespace", "labels", func(g *Gen) Input {
			return create(Agent, "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/"+BareCluster+"/clusternamespaces", []byte(`{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterNamespace",`+meta(g)+`}`))
		}},
		{"clusternamespace", "many", func(g *Gen) Input {
			// The objects are not deleted: the total per cluster is bounded.
			path := "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + BareCluster + "/clusternamespaces"
			labels := mapOf(g.upTo(1, 14_000), "k", `"v"`)
			var input Input
			for i := range g.upTo(1, 60) {
				input.Requests = append(input.Requests, Request{As: Agent, Method: "POST", Path: path, Body: fmt.Appendf(nil, `{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterNamespace","metadata":{"name":"many%d-%d","labels":%s}}`, g.Uint32(), i, labels)})
			}
			return input
		}},
		{"managedcluster", "claims", func(g *Gen) Input {
			return status(g, `"clusterClaims":[`+each(g.upTo(1, 50_000), ",", func(i int) string { return fmt.Sprintf(`{"name":"c%d","value":"%d"}`, i, i) })+`]`)
		}},
		{"managedcluster", "long claims", func(g *Gen) Input {
			return status(g, `"clusterClaims":[{"name":"c","value":"`+strings.Repeat("v", g.upTo(1, 1_000_000))+`"}],"version":{"kubernetes":"`+strings.Repeat("v", g.upTo(1, 1_000_000))+`"}`)
		}},
		{"managedcluster", "conditions", func(g *Gen) Input {
			return status(g, `"conditions":[`+each(g.upTo(1, 10_000), ",", func(i int) string {
				return fmt.Sprintf(`{"type":"T%d","status":"True","reason":"A","message":"m","lastTransitionTime":"2020-01-01T00:00:00Z"}`, i)
			})+`]`)
		}},
		{"managedcluster", "quantities", func(g *Gen) Input {
			digits := strings.Repeat("9", g.upTo(1, 300_000))
			return status(g, fmt.Sprintf(`%q:{%s}`, pick(g, "capacity", "allocatable"), each(g.upTo(1, 100), ",", func(i int) string {
				return fmt.Sprintf(`"r%d":"%s"`, i, pick(g, digits[:min(len(digits), 1+30_000/(i+1))], "1e"+digits[:min(9, len(digits))], "1e-"+digits[:min(9, len(digits))], "0."+digits[:min(len(digits), 1000)]))
			})))
		}},
		{"managedcluster", "applications", func(g *Gen) Input {
			return create(Applicant, clustersPath, fmt.Appendf(nil, `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster",%s,"spec":{"managedClusterClientConfigs":[%s],"taints":[%s]}}`, meta(g),
				each(g.upTo(1, 10_000), ",", func(i int) string { return fmt.Sprintf(`{"url":"https://a%d","caBundle":"YQ=="}`, i) }),
				each(g.upTo(1, 10_000), ",", func(i int) string { return fmt.Sprintf(`{"key":"k%d","effect":"NoSelect"}`, i) })))
		}},
		{"arn", "claims", func(g *Gen) Input {
			arn := "arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat(pick(g, "a", ":", "/", "*", "${aws:username}", "\U0001F600", "\"", "\\"), g.upTo(1, 300_000))
			if g.IntN(2) == 0 {
				arn = strings.Repeat(pick(g, "arn:", ":", "arn:aws:eks:", "/"), g.upTo(1, 300_000))
			}
			return Input{Requests: []Request{{As: Applicant, Method: "POST", Path: "/apis/register.open-cluster-management.io/v1alpha1/managedclusters/" + BareCluster + "/irsa", Body: encode(fields{
				"apiVersion": "register.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterIRSA", "spec": fields{"managedClusterARN": arn},
			})}}}
		}},
		{"arn", "annotations", func(g *Gen) Input {
			value := strings.Repeat(pick(g, "arn:aws:iam::123456789012:role/", ":", "a", "/", "\""), g.upTo(1, 10_000))
			return create(Applicant, clustersPath, encode(fields{"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": fields{"name": object, "annotations": fields{
				"agent.open-cluster-management.io/managed-cluster-iam-role-suffix": value, "agent.open-cluster-management.io/managed-cluster-arn": value, "agent.open-cluster-management.io/hub-cluster-arn": value,
			}}}))
		}},
		{"csr", "subjects and names", func(g *Gen) Input {
			key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
			if err != nil {
				panic(err) // the machine has no random numbers
			}
			template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: strings.Repeat("a", g.upTo(1, 100_000)), Organization: manyStrings(g.upTo(1, 20_000), "system:open-cluster-management:"+BareCluster)}, DNSNames: manyStrings(g.upTo(1, 20_000), "a.b")}
			der, err := x509.CreateCertificateRequest(cryptorand.Reader, template, key)
			if err != nil {
				panic(err)
			}
			return request(pick(g, Agent, Applicant), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		}},
		{"csr", "malformed", func(g *Gen) Input {
			junk := []byte(strings.Repeat(pick(g, "\x30\x80", "\x30\x82\xff\xff", "\x00", "\x30\x84\x7f\xff\xff\xff", "a"), g.upTo(1, 300_000)))
			return request(pick(g, Agent, Applicant), pick(g, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: junk}), junk, []byte(strings.Repeat("-----BEGIN CERTIFICATE REQUEST-----\n", g.upTo(1, 20_000)))))
		}},
		{"body", "JSON of no kind", func(g *Gen) Input {
			body := strings.Repeat(pick(g, "[", `{"a":`, `"`, "1", " ", "\x00", "{}", "\xef\xbb\xbf"), g.upTo(1, requestSize/6))
			path := pick(g, worksPath, permissionsPath, accountsPath, searchPath+"/searches", searchPath+"/graphql")
			return Input{Requests: []Request{{As: Tenant, Method: "POST", Path: path, ContentType: pick(g, "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "text/plain"), Body: []byte(body)}}}
		}},
		{"body", "YAML", func(g *Gen) Input {
			n := g.upTo(1, 100_000)
			body := pick(g, "a0: &a0 [x]\n"+each(min(n, 40), "", func(i int) string {
				return fmt.Sprintf("a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i)
			}), strings.Repeat("- ", n)+"a", strings.Repeat("? ", n), strings.Repeat("{a: ", n), "a: &a\n  b: *a\n", strings.Repeat("a: b\n", n), strings.Repeat("!!map ", n), strings.Repeat("---\n", n), "a: |\n"+strings.Repeat("  a\n", n))
			return Input{Requests: []Request{{As: Tenant, Method: "POST", Path: pick(g, worksPath, permissionsPath, accountsPath), ContentType: "application/yaml", Body: []byte(body)}}}
		}},
	}
}
