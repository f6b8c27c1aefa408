package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	epochAnnotation     = "open-cluster-management.io/hub-epoch"
	migrationAnnotation = "migration.open-cluster-management.io/"
	namespacesPath      = "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + BareCluster + "/clusternamespaces"
	reviewsPath         = "/apis/access.open-cluster-management.io/v1alpha1/fleetsubjectreviews"
	// namespaceQuota is the default quota of the ClusterNamespaces of a cluster in bytes.
	namespaceQuota = 32 << 20
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

// asAdmin sends a request as an administrator.
func (s *Site) asAdmin(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	request := Request{Method: method, Path: path, Body: body}
	if method == http.MethodPatch {
		request.ContentType = "application/merge-patch+json"
	}
	return send(ctx, s.admin, s.host, request)
}

// believedClasses are inputs in fields that the server or clusteradm reads as facts.
func believedClasses() []Class {
	return []Class{
		{"annotation", "hub epoch", func(g *Gen) Input {
			value := pick(g, "9223372036854775807/x", "1/made-up", "-1/x", "+7/evil", "0x7/a", strings.Repeat("9", g.upTo(1, 100_000))+"/x", "1/"+strings.Repeat("/", g.upTo(1, 100_000)))
			annotated := fields{"annotations": fields{epochAnnotation: value}}
			path := clustersPath + "/" + BareCluster
			input := Input{Requests: []Request{{As: Agent, Method: http.MethodPatch, Path: path, ContentType: "application/merge-patch+json", Body: encode(fields{"metadata": annotated})}}}
			if g.IntN(2) == 0 {
				annotated["name"], path = object, clustersPath+"/"+object
				input = create(Applicant, clustersPath, encode(fields{"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": annotated}))
			}
			input.Check = func(ctx context.Context, s *Site) (string, error) {
				code, answer, err := s.asAdmin(ctx, http.MethodGet, path, nil)
				if err != nil || code != http.StatusOK {
					return "", err
				}
				stored := &metav1.PartialObjectMetadata{}
				if err := json.Unmarshal(answer, stored); err != nil {
					return "", err
				}
				if stored.Annotations[epochAnnotation] != value {
					return "", nil
				}
				_, _, err = s.asAdmin(ctx, http.MethodPatch, path, encode(fields{"metadata": fields{"annotations": fields{epochAnnotation: nil}}}))
				return fmt.Sprintf("%s has the annotation %s: %.40q of a caller that must not set it", path, epochAnnotation, value), err
			}
			return input
		}},
		{"annotation", "migration", func(g *Gen) Input {
			value := pick(g, "nothing", object, "{}", `{"uid":1}`, "[", strings.Repeat("{", g.upTo(1, 100_000)), strings.Repeat("a", g.upTo(1, 200_000)))
			input := create(Tenant, worksPath, encode(fields{
				"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
				"metadata": fields{"name": object, "annotations": fields{migrationAnnotation + "successor": value, migrationAnnotation + "owner": value}},
				"spec":     fields{"deleteOption": fields{"propagationPolicy": "Orphan"}, "workload": fields{"manifests": []any{configMap(fields{"a": "b"})}}},
			}))
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
				owner["name"], owner["uid"] = strings.Repeat("g", g.upTo(1, 250)), fmt.Sprintf("00000000-dead-beef-%04d-%012x", i, g.Uint32())
				owners = append(owners, owner)
			}
			path, group, kind, spec := worksPath, "work.open-cluster-management.io/v1", "ManifestWork", fields{"deleteOption": fields{"propagationPolicy": "Orphan"}, "workload": fields{"manifests": []any{configMap(fields{"a": "b"})}}}
			if g.IntN(2) == 0 {
				path, group, kind, spec = accountsPath, "authentication.open-cluster-management.io/v1beta1", "ManagedServiceAccount", fields{"rotation": fields{}}
			}
			input := create(Tenant, path, encode(fields{"apiVersion": group, "kind": kind, "metadata": fields{"name": object, "ownerReferences": owners}, "spec": spec}))
			input.Check = exports
			return input
		}},
		{"name", "subjects", func(g *Gen) Input {
			subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "aaa"}}
			for i := range 1 + g.IntN(4) {
				length := pick(g, 3_000, 3_072, 4_096, g.upTo(1, 16_000))
				subjects = append(subjects, rbacv1.Subject{Kind: pick(g, rbacv1.UserKind, rbacv1.GroupKind), APIGroup: rbacv1.GroupName, Name: strings.ToValidUTF8(fmt.Sprint("zz", i, strings.Repeat(pick(g, "z", "\U0001F600", "\""), length))[:length+3], "")})
			}
			review := func(token string) Request {
				return Request{Method: http.MethodPost, Path: reviewsPath, Body: encode(fields{"apiVersion": "access.open-cluster-management.io/v1alpha1", "kind": "FleetSubjectReview", "spec": fields{
					"resourceAttributes": fields{"verb": "frob", "group": "hostile.example.com", "resource": "probes"}, "limit": 1, "continue": token,
				}})}
			}
			first := review("")
			first.As = Tenant
			return Input{Requests: []Request{first}, Check: func(ctx context.Context, s *Site) (string, error) { return s.pagesOfSubjects(ctx, subjects, review) }}
		}},
		{"name", "resources", func(g *Gen) Input {
			n, length := g.upTo(2, 100), pick(g, 253, 3_072, 4_096, 15_000, g.upTo(1, 16_000))
			filling := strings.Repeat(pick(g, "z", "\U0001F600", `\"`, `\n`), length/2)
			body := `{"addResources":[` + each(n, ",", func(i int) string {
				return fmt.Sprintf(`{"uid":"%s/named%d","kind":"Named","resourceString":"nameds","properties":{"name":"%d%s","namespace":"%d%s"}}`, BareCluster, i, i, filling, i, filling)
			}) + `]}`
			input := Input{Requests: []Request{{As: Agent, Method: http.MethodPost, Path: syncPath, Body: []byte(body)}}}
			limit := 1 + g.IntN(n)
			input.Check = func(ctx context.Context, s *Site) (string, error) {
				over, err := s.pagesOfResources(ctx, n, limit)
				_, _, removed := send(ctx, s.clients[Agent], s.host, Request{Method: http.MethodPost, Path: syncPath, Body: []byte(`{"deleteResources":[` + each(n, ",", func(i int) string {
					return fmt.Sprintf(`{"uid":"%s/named%d"}`, BareCluster, i)
				}) + `]}`)})
				if err == nil {
					err = removed
				}
				return over, err
			}
			return input
		}},
		{"deletion", "objects that grow", func(g *Gen) Input {
			// The largest inputs have 70 MB with their managedFields.
			n := 12 * g.Size
			labels := mapOf(220, strings.Repeat("k", 60), `"`+strings.Repeat("v", 63)+`"`)
			annotation := strings.Repeat("a", 15<<10)
			return Input{
				Requests: []Request{{As: Agent, Method: http.MethodPost, Path: namespacesPath + "?dryRun=All", Body: growing(object, "", labels, annotation)}},
				Check:    func(ctx context.Context, s *Site) (string, error) { return s.growDeleted(ctx, n, labels, annotation) },
			}
		}},
	}
}

// growing returns a ClusterNamespace with labels and an annotation. The version is empty for a new object.
func growing(name, version, labels, annotation string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterNamespace","metadata":{"name":%q,"resourceVersion":%q,"finalizers":["example.com/hostile"],"labels":%s,"annotations":{"a":%q}}}`, name, version, labels, annotation)
}

// growDeleted deletes objects with a finalizer, lets them grow, and reports whether they exceed the quota of their
// namespace.
func (s *Site) growDeleted(ctx context.Context, n int, labels, annotation string) (string, error) {
	var stored atomic.Int64
	deleted := make([]metav1.PartialObjectMetadata, n)
	forAll := func(do func(ctx context.Context, i int, path string) error) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(8)
		for i := range n {
			group.Go(func() error { return do(ctx, i, namespacesPath+"/"+object+"-deleted-"+strconv.Itoa(i)) })
		}
		return group.Wait()
	}
	// patient retries a request that exceeds a rate.
	patient := func(ctx context.Context, request Request) (answer []byte, code int, err error) {
		err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			code, answer, err = send(ctx, s.clients[Agent], s.host, request)
			return code != http.StatusTooManyRequests, err
		})
		return answer, code, err
	}
	err := forAll(func(ctx context.Context, i int, path string) error {
		if _, _, err := patient(ctx, Request{Method: http.MethodPost, Path: namespacesPath, Body: growing(filepath.Base(path), "", "{}", "")}); err != nil {
			return err
		}
		answer, code, err := patient(ctx, Request{Method: http.MethodDelete, Path: path})
		if err != nil || code != http.StatusOK {
			return err
		}
		return json.Unmarshal(answer, &deleted[i])
	})
	if err == nil {
		err = forAll(func(ctx context.Context, i int, path string) error {
			answer, code, err := patient(ctx, Request{Method: http.MethodPut, Path: path, Body: growing(filepath.Base(path), deleted[i].ResourceVersion, labels, annotation)})
			if code == http.StatusOK {
				stored.Add(int64(len(answer)))
			}
			return err
		})
	}
	removed := forAll(func(ctx context.Context, _ int, path string) error {
		_, _, err := s.asAdmin(ctx, http.MethodPatch, path, []byte(`{"metadata":{"finalizers":null}}`))
		return err
	})
	if err == nil {
		err = removed
	}
	// The server counts a size that differs a little from that of a response.
	if bytes := stored.Load(); bytes > namespaceQuota+namespaceQuota/20 {
		return fmt.Sprintf("%d objects that are being deleted have grown to %d MB, the quota of the namespace is %d MB", n, bytes>>20, namespaceQuota>>20), err
	}
	return "", err
}

// shownName is the number of bytes of a name that a review shows.
const shownName = 512

// pagesOfSubjects binds a permission to subjects on the managed cluster, and reports whether all pages of a review of the
// permission contain them.
func (s *Site) pagesOfSubjects(ctx context.Context, subjects []rbacv1.Subject, review func(token string) Request) (over string, err error) {
	named := metav1.ObjectMeta{Name: object}
	roles, bindings := s.managed.RbacV1().ClusterRoles(), s.managed.RbacV1().ClusterRoleBindings()
	defer func() {
		for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{bindings.Delete, roles.Delete} {
			if failed := remove(ctx, object, metav1.DeleteOptions{}); err == nil {
				err = failed
			}
		}
	}()
	if _, err := roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"hostile.example.com"}, Resources: []string{"probes"}, Verbs: []string{"frob"}}}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if _, err := bindings.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: object}, Subjects: subjects}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	type answer struct {
		Status struct {
			Subjects []struct{ Name string }
			Continue string
		}
	}
	page := func(token string) (page answer, failure string) {
		code, body, err := send(ctx, s.admin, s.host, review(token))
		if err != nil || code != http.StatusCreated {
			return page, fmt.Sprintf("%d %s %v", code, cut(string(body), 200), err)
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return page, err.Error()
		}
		return page, ""
	}
	missing := ""
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, answerTimeout, true, func(context.Context) (bool, error) {
		seen := map[string]int{}
		for token, first := "", true; token != "" || first; first = false {
			next, failure := page(token)
			if failure != "" {
				missing = fmt.Sprintf("the page of a FleetSubjectReview after %d subjects: %s", len(seen), failure)
				return false, nil
			}
			for _, subject := range next.Status.Subjects {
				seen[subject.Name]++
			}
			token = next.Status.Continue
		}
		for _, subject := range subjects {
			shown := rbac.Clip(subject.Name, shownName)
			if seen[shown]--; seen[shown] < 0 {
				missing = fmt.Sprintf("the pages of a FleetSubjectReview do not contain a subject with a name of %d bytes", len(subject.Name))
				return false, nil
			}
		}
		missing = ""
		return true, nil
	})
	if missing != "" {
		err = nil
	}
	return missing, err
}

// pagesOfResources reports whether all pages of lists and searches contain the resources of kind Named.
func (s *Site) pagesOfResources(ctx context.Context, n, limit int) (string, error) {
	list := func(token string) Request {
		path := searchPath + "/namespaces/" + BareCluster + "/fleetresources?fieldSelector=kind%3DNamed&limit=" + strconv.Itoa(limit) + "&continue=" + token
		return Request{Method: http.MethodGet, Path: path}
	}
	search := func(token string) Request {
		return Request{Method: http.MethodPost, Path: searchPath + "/searches", Body: encode(fields{"apiVersion": "search.open-cluster-management.io/v1alpha1", "kind": "Search", "spec": fields{
			"query": "kind:Named", "limit": limit, "orderBy": []string{"name", "namespace"}, "continue": token,
		}})}
	}
	for what, request := range map[string]func(string) Request{"a list of fleetresources": list, "a search": search} {
		seen := 0
		for token, first := "", true; token != "" || first; first = false {
			var page struct {
				Metadata struct{ Continue string }
				Items    []json.RawMessage
				Status   struct {
					Items    []json.RawMessage
					Continue string
				}
			}
			code, body, err := send(ctx, s.clients[Tenant], s.host, request(token))
			if err != nil {
				return "", err
			}
			if code >= http.StatusMultipleChoices || json.Unmarshal(body, &page) != nil {
				return fmt.Sprintf("the page of %s after %d resources: %d %s", what, seen, code, cut(string(body), 200)), nil
			}
			seen += len(page.Items) + len(page.Status.Items)
			token = page.Metadata.Continue + page.Status.Continue
		}
		if seen != n {
			return fmt.Sprintf("all pages of %s contain %d resources, want %d", what, seen, n), nil
		}
	}
	return "", nil
}
