package hostile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	epochAnnotation     = "open-cluster-management.io/hub-epoch"
	migrationAnnotation = "migration.open-cluster-management.io/"
)

// exports returns a check that clusteradm exports all objects of the hub.
func exports(ctx context.Context, s *Site) (string, error) {
	dir, err := os.MkdirTemp("", "hostile-export-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if _, err := (&localhub.Clusteradm{}).Run(ctx, s.Fleet.Hub, "hub", "export", filepath.Join(dir, "hub.gz")); err != nil {
		return fmt.Sprintf("clusteradm hub export: %v", err), nil
	}
	return "", nil
}

// believedClasses are inputs in fields that the server or clusteradm reads as facts.
func believedClasses() []Class {
	return []Class{
		{"annotation", "hub epoch", func(g *Gen) Input {
			value := pick(g, "9223372036854775807/x", "1/made-up", "-1/x", "+7/evil", "0x7/a", g.long(100_000, "9")+"/x", "1/"+g.long(100_000, "/"))
			annotations := `"annotations":` + string(encode(fields{epochAnnotation: value}))
			path, input := clustersPath+"/"+BareCluster, once(Agent, http.MethodPatch, clustersPath+"/"+BareCluster, []byte(`{"metadata":{`+annotations+`}}`))
			if g.IntN(2) == 0 {
				path, input = clustersPath+"/"+object, create(Applicant, clustersPath, "ManagedCluster", ","+annotations, "")
			}
			input.Check = func(ctx context.Context, s *Site) (string, error) {
				code, answer, err := s.send(ctx, Request{Method: http.MethodGet, Path: path})
				if err != nil || code != http.StatusOK {
					return "", err
				}
				stored := &metav1.PartialObjectMetadata{}
				if err := json.Unmarshal(answer, stored); err != nil || stored.Annotations[epochAnnotation] != value {
					return "", err
				}
				_, _, err = s.send(ctx, Request{Method: http.MethodPatch, Path: path, Body: encode(fields{"metadata": fields{"annotations": fields{epochAnnotation: nil}}})})
				return fmt.Sprintf("%s has the annotation %s: %.40q of a caller that must not set it", path, epochAnnotation, value), err
			}
			return input
		}},
		{"annotation", "migration", func(g *Gen) Input {
			value := pick(g, "nothing", object, "{}", `{"uid":1}`, "[", g.long(100_000, "{"), g.long(200_000, "a"))
			annotations := encode(fields{migrationAnnotation + "successor": value, migrationAnnotation + "owner": value})
			input := create(Tenant, worksPath, "ManifestWork", `,"annotations":`+string(annotations), spec(simple(fields{"deleteOption": fields{"propagationPolicy": "Orphan"}})))
			input.Check = exports
			return input
		}},
		{"ownerreference", "unserved versions and unknown UIDs", func(g *Gen) Input {
			var owners []any
			for i := range g.upTo(1, 64) {
				owner := pick(g,
					fields{"apiVersion": "work.open-cluster-management.io/v9", "kind": "ManifestWork"},
					fields{"apiVersion": "rbac.open-cluster-management.io/v9", "kind": "ClusterPermission"},
					fields{"apiVersion": "cluster.open-cluster-management.io/v9alpha9", "kind": "ManagedCluster"},
					fields{"apiVersion": "none.example.com/v1", "kind": "None"})
				owner["name"], owner["uid"] = g.long(250, "g"), fmt.Sprintf("00000000-dead-beef-%04d-%012x", i, g.Uint32())
				owners = append(owners, owner)
			}
			metadata := `,"ownerReferences":` + string(encode(owners))
			input := pick(g, create(Tenant, worksPath, "ManifestWork", metadata, spec(simple(fields{"deleteOption": fields{"propagationPolicy": "Orphan"}}))),
				create(Tenant, accountsPath, "ManagedServiceAccount", metadata, `,"spec":{"rotation":{}}`))
			input.Check = exports
			return input
		}},
		{"name", "resources", func(g *Gen) Input {
			n, length := g.upTo(2, 100), pick(g, 253, 3_072, 4_096, 15_000, g.upTo(1, 16_000))
			filling := strings.Repeat(pick(g, "z", "\U0001F600", `\"`, `\n`), length/2)
			limit := 1 + g.IntN(n)
			return Input{
				Requests: []Request{reporting(added(n, func(i int) string {
					return fmt.Sprintf(`{"uid":"%s/named%d","kind":"Named","resourceString":"nameds","properties":{"name":"%d%s","namespace":"%d%s"}}`, BareCluster, i, i, filling, i, filling)
				}))},
				Check: func(ctx context.Context, s *Site) (string, error) {
					over, err := s.pagesOfResources(ctx, n, limit)
					_, _, removed := s.send(ctx, removing(n, "named%"))
					return over, cmp.Or(err, removed)
				},
			}
		}},
	}
}

// page is a page of a list or of a search.
type page struct {
	Metadata struct{ Continue string }
	Items    []json.RawMessage
	Status   struct {
		Continue string
		Items    []json.RawMessage
	}
}

// pages calls add for each page. request returns the request with a token of the page before it. It returns why a page is
// not available, or "".
func (s *Site) pages(ctx context.Context, request func(token string) Request, add func(page)) string {
	for token, first := "", true; token != "" || first; first = false {
		var next page
		code, body, err := s.send(ctx, request(token))
		if err == nil && code < http.StatusMultipleChoices {
			err = json.Unmarshal(body, &next)
		}
		if err != nil || code >= http.StatusMultipleChoices {
			return fmt.Sprintf("%d %s %v", code, cut(string(body), 200), err)
		}
		add(next)
		token = next.Metadata.Continue + next.Status.Continue
	}
	return ""
}

// pagesOfResources reports whether all pages of lists and searches contain the resources of kind Named.
func (s *Site) pagesOfResources(ctx context.Context, n, limit int) (string, error) {
	for what, request := range map[string]func(token string) Request{
		"a list of fleetresources": func(token string) Request {
			return Request{As: Tenant, Method: http.MethodGet, Path: searchPath + "/namespaces/" + BareCluster + "/fleetresources?fieldSelector=kind%3DNamed&limit=" + strconv.Itoa(limit) + "&continue=" + token}
		},
		"a search": func(token string) Request {
			return searching("/searches", "Search", fields{"query": "kind:Named", "limit": limit, "orderBy": []string{"name", "namespace"}, "continue": token}).Requests[0]
		},
	} {
		seen := 0
		failure := s.pages(ctx, request, func(p page) { seen += len(p.Items) + len(p.Status.Items) })
		if failure != "" || seen != n {
			return fmt.Sprintf("all pages of %s contain %d resources, want %d; %s", what, seen, n, failure), ctx.Err()
		}
	}
	return "", nil
}
