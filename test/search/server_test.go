package search

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// searchServer is a server with search on an external etcd, which another server can share. No agent runs.
type searchServer struct {
	*fleet
	dir, etcd string
	reporter  *reporter
	// direct connects to the server directly, not through the hub.
	direct *versioned.Clientset
	// lasting is true if changes and continue tokens stay valid after a restart of the server.
	lasting bool
}

// TestSearchServer checks restarts, crashes and configurations of a server with search.
func TestSearchServer(t *testing.T) {
	t.Parallel()
	searchDir := filepath.Join(framework.OwnDir(t), "search")
	s := newSearchServer(t, "--search-data-dir="+searchDir)
	t.Run("restart", s.restarts)
	t.Run("acknowledged reports survive a kill", s.killed)
	t.Run("decisions by SubjectAccessReviews", s.reviews)
	t.Run("a second server with embedded search does not start", func(t *testing.T) { s.refusesSecond(t, searchDir) })
	t.Run("a server without search", s.withoutSearch)
}

// newSearchServer starts a hub and a server with the given search flags.
func newSearchServer(t *testing.T, args ...string) *searchServer {
	t.Helper()
	hub, dir := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub"}), framework.OwnDir(t)
	s := &searchServer{dir: dir, etcd: framework.OwnEtcd(t, "etcd", dir).Endpoint}
	server := s.another(t, hub, "first", args...)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.fleet, s.direct = &fleet{framework.Serve(t, hub, server)}, framework.Direct(t, server)
	if err := localhub.JoinCluster(t.Context(), hub, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	s.reporter = s.reporterFor(t, framework.Cluster1)
	return s
}

// another returns another server on the same etcd.
func (s *searchServer) another(t *testing.T, hub *localhub.Cluster, name string, args ...string) *localhub.APIServer {
	t.Helper()
	return framework.NewServer(t, localhub.APIServerOptions{
		Hub: hub, Name: name, Dir: filepath.Join(s.dir, name), PKIDir: filepath.Join(s.dir, "pki"), LogDir: s.dir,
		EtcdServers: []string{s.etcd}, Args: args,
	})
}

// restarts checks that all resources are found immediately after a kill and after an orderly stop of the server.
func (s *searchServer) restarts(t *testing.T) {
	resources, edges := s.reporter.shop()
	s.reporter.has(t, resources, edges...)
	pods := []string{"pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"}
	before := framework.Must(s.OCM.SearchV1alpha1().FleetResources(framework.Cluster1).List(t.Context(), metav1.ListOptions{}))(t)
	page := textQuery("kind:Pod cluster:" + framework.Cluster1)
	page.Limit = new(int32(1))
	first := framework.Must(search(t.Context(), s.direct, page))(t)
	for what, again := range map[string]func() error{
		"a kill":          func() error { return s.Server.Process.Restart(t.Context()) },
		"an orderly stop": func() error { return errors.Join(s.Server.Stop(t.Context()), s.Server.Process.Start(t.Context())) },
	} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		// The first request after readiness must succeed.
		if err := same(searched(t, s.direct, page.Query), pods); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
		request := textQuery("kind:ReplicaSet cluster:" + framework.Cluster1)
		request.Output = searchv1alpha1.OutputRelated
		if got := framework.Must(search(t.Context(), s.direct, request))(t); len(got.Related) != 2 {
			t.Errorf("after %s: related = %+v, want two kinds", what, got.Related)
		}
	}
	framework.Eventually(t, "the hub forwards searches to the server", func(ctx context.Context) error {
		_, err := search(ctx, s.OCM, textQuery("kind:Pod"))
		return err
	})
	// The resource version of the list must not decrease. Changes before the restart may be unavailable.
	after := framework.Must(s.direct.SearchV1alpha1().FleetResources(framework.Cluster1).List(t.Context(), metav1.ListOptions{}))(t)
	if after.ResourceVersion < before.ResourceVersion && len(after.ResourceVersion) <= len(before.ResourceVersion) || len(after.Items) != len(before.Items) {
		t.Errorf("before the restart %d objects at version %s, after it %d at version %s, want the same number and no lower version", len(before.Items), before.ResourceVersion, len(after.Items), after.ResourceVersion)
	}
	s.reporter.changes(t, inventory.Sync{AddResources: []inventory.Resource{s.reporter.resource("ConfigMap", "default", "after", nil)}})
	page.Continue = first.Continue
	if s.lasting {
		watching := framework.Must(s.direct.SearchV1alpha1().FleetResources(framework.Cluster1).Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion}))(t)
		defer watching.Stop()
		wantEvent(t, watching, watch.Added, "configmap.default.after")
		if second := framework.Must(search(t.Context(), s.direct, page))(t); len(second.Items) != 1 || second.Items[0].UID == first.Items[0].UID {
			t.Errorf("page of a continue token from before the restart = %+v, want one item that is not on the first page", second.Items)
		}
		return
	}
	watching, err := s.direct.SearchV1alpha1().FleetResources(framework.Cluster1).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	expired(t, watching, err)
	if _, err := search(t.Context(), s.direct, page); !apierrors.IsResourceExpired(err) {
		t.Errorf("continue token from before the restart: error = %v, want Expired", err)
	}
}

// killed checks that the server loses no acknowledged report if it is killed while it receives reports.
func (s *searchServer) killed(t *testing.T) {
	config := s.Server
	acknowledged := map[string]bool{}
	var mu sync.Mutex
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	agent, err := config.UserConfig(localhub.AgentUser(framework.Cluster1), localhub.AgentGroup(framework.Cluster1))
	client := framework.OCMClient(t, agent, err)
	var reporting sync.WaitGroup
	reporting.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			widget := s.reporter.resource("Widget", "killed", fmt.Sprintf("w-%05d", i), nil)
			requestCtx, done := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := postReport(requestCtx, client, syncPath(framework.Cluster1), false, inventory.Sync{AddResources: []inventory.Resource{widget}})
			done()
			mu.Lock()
			if err == nil {
				acknowledged[uidOf("Widget", "killed", fmt.Sprintf("w-%05d", i))] = true
			}
			mu.Unlock()
		}
	})
	const kills, between = 3, 100
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	for kill := range kills {
		framework.Eventually(t, fmt.Sprintf("at least %d reports are acknowledged", (kill+1)*between), func(context.Context) error {
			if n := count(); n < (kill+1)*between {
				return fmt.Errorf("%d are acknowledged", n)
			}
			return nil
		})
		if err := s.Server.Process.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := count()
		t.Logf("after kill %d: found %d of at least %d resources", kill+1, searched(t, s.direct, "kind:Widget namespace:killed").Count, before)
	}
	cancel()
	reporting.Wait()
	found := map[string]bool{}
	for _, uid := range uids(searched(t, s.direct, "kind:Widget namespace:killed").Items) {
		found[uid] = true
	}
	lost := 0
	for uid := range acknowledged {
		if !found[uid] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("lost reports = %d of %d acknowledged ones, want 0", lost, len(acknowledged))
	}
}

// reviews checks searches with --search-visibility=Reviews. The server then sends SubjectAccessReviews to the hub for
// its decisions, as on a hub with an authorizer other than RBAC.
func (s *searchServer) reviews(t *testing.T) {
	hub := s.hubReporter(t)
	s.makeNamespace(t, "seen")
	s.makeNamespace(t, "unseen")
	var pods []inventory.Resource
	for _, namespace := range []string{"seen", "unseen"} {
		for _, name := range []string{"one", "two"} {
			pods = append(pods, hub.resource("Pod", namespace, name, nil), hub.resource("ConfigMap", namespace, name, nil))
		}
	}
	hub.changes(t, inventory.Sync{AddResources: pods})
	viewer, lister, nothing := s.searcher(t, "viewer"), s.searcher(t, "lister"), s.searcher(t, "nothing")
	viewer.views(t, framework.Cluster1)
	lister.May(t, "seen", listing("", []string{"pods"}))
	lister.May(t, "unseen", listing("", []string{"configmaps"}, "two"))

	args := s.Server.Args
	s.Server.Args = append(slices.Clone(args), "--search-visibility=Reviews")
	if err := errors.Join(s.Server.Stop(t.Context()), s.Server.Process.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	direct := func(c *caller) *versioned.Clientset {
		config, err := s.Server.UserConfig(c.Name)
		return framework.OCMClient(t, config, err)
	}
	query := "kind:Pod,ConfigMap,Secret,Deployment namespace:seen,unseen,payments"
	for range 2 {
		finds(t, direct(lister), query, "pod.seen.one", "pod.seen.two", "configmap.unseen.two")
		finds(t, direct(viewer), query, "pod.payments.web-1-a", "pod.payments.web-1-b", "deployment.payments.web")
		finds(t, direct(nothing), query)
		finds(t, s.direct, query+" cluster:"+framework.Cluster1, "pod.payments.web-1-a", "pod.payments.web-1-b", "deployment.payments.web")
	}
	s.Server.Args = args
	if err := errors.Join(s.Server.Stop(t.Context()), s.Server.Process.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func (s *searchServer) refusesSecond(t *testing.T, searchDir string) {
	for what, dir := range map[string]string{"with other data": filepath.Join(s.dir, "other-search"), "with the same data": searchDir} {
		t.Run(what, func(t *testing.T) {
			second := s.another(t, s.Hub, "second-"+strings.ReplaceAll(what, " ", "-"), "--search-data-dir="+dir)
			if err := second.Start(t.Context()); err == nil {
				t.Fatal("start of a second server with embedded search succeeded, want an error")
			} else if !strings.Contains(err.Error(), "--search-engine=postgres") {
				t.Errorf("start of a second server: error = %v, want one that names --search-engine=postgres", err)
			}
		})
	}
	t.Run("without a directory", func(t *testing.T) {
		if err := s.another(t, s.Hub, "nowhere").Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--search-data-dir") || !strings.Contains(err.Error(), "--search-engine=postgres") {
			t.Errorf("start without a data directory: error = %v, want one that names --search-data-dir and --search-engine=postgres", err)
		}
	})
	if result := searched(t, s.direct, "kind:Node"); result.Count != 1 {
		t.Errorf("count on the first server = %d, want 1", result.Count)
	}
}

func (s *searchServer) withoutSearch(t *testing.T) {
	server := s.another(t, s.Hub, "without-search", "--search-engine=none")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := framework.Must(server.UserConfig("admin", "system:masters"))(t)
	client := framework.OCMClient(t, config, nil)
	for what, request := range searchEndpoints(framework.Cluster1) {
		if err := request(t.Context(), client); !apierrors.IsNotFound(err) {
			t.Errorf("%s: error = %v, want 404", what, err)
		}
	}
	for what, request := range reportEndpoints(framework.Cluster1) {
		if err := request(t.Context(), client); !apierrors.IsNotFound(err) {
			t.Errorf("%s: error = %v, want 404", what, err)
		}
	}
	groups := framework.Must(framework.Must(discovery.NewDiscoveryClientForConfig(config))(t).ServerGroups())(t)
	served := false
	for _, group := range groups.Groups {
		if group.Name == searchv1alpha1.GroupName {
			t.Errorf("API group %s is served, want it absent", group.Name)
		}
		served = served || group.Name == rbacv1alpha1.GroupName
	}
	if !served {
		t.Errorf("API group %s is not served", rbacv1alpha1.GroupName)
	}
	if _, err := client.RbacV1alpha1().ClusterPermissions(framework.Cluster1).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
