package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// BenchmarkDelivery measures the time from the creation of a ManifestWork to the creation of its
// objects on the managed cluster, for ManifestWorks that are created one after another and for b.N
// ManifestWorks that are created at once. An operation is one ManifestWork with a Role and two
// RoleBindings.
func BenchmarkDelivery(b *testing.B) {
	f := shared(b)
	manifests := func(i int) []string {
		return []string{
			fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r%d, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`, i),
			fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r%d, namespace: NS}, roleRef: {kind: Role, name: r%d}, subjects: [{kind: User, name: u}]}`, i, i),
			fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: last%d, namespace: NS}, roleRef: {kind: Role, name: r%d}, subjects: [{kind: User, name: v}]}`, i, i),
		}
	}
	// watch sends the name of the last RoleBinding of each ManifestWork when it is created.
	watch := func(c *cluster, count int) (<-chan string, func()) {
		watcher, err := c.kube.RbacV1().RoleBindings(c.name).Watch(b.Context(), metav1.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		names := make(chan string, count)
		go func() {
			defer close(names)
			for event := range watcher.ResultChan() {
				if object, ok := event.Object.(metav1.Object); ok && event.Type == "ADDED" && len(object.GetName()) > 4 && object.GetName()[:4] == "last" {
					names <- object.GetName()
				}
			}
		}()
		return names, watcher.Stop
	}
	b.Run("one-after-another", func(b *testing.B) {
		c := f.cluster(b)
		c.run()
		warm(c)
		names, stop := watch(c, b.N)
		defer stop()
		var times []time.Duration
		for b.Loop() {
			i := len(times)
			start := time.Now()
			c.create(fmt.Sprintf("-%d", i), nil, manifests(i)...)
			select {
			case <-names:
			case <-time.After(await.Patience):
				b.Fatal("the last RoleBinding of a ManifestWork was not created in time")
			}
			times = append(times, time.Since(start))
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
	})
	b.Run("at-once", func(b *testing.B) {
		c := f.cluster(b)
		c.run()
		warm(c)
		names, stop := watch(c, b.N)
		defer stop()
		b.ResetTimer()
		for i := range b.N {
			c.create(fmt.Sprintf("-%d", i), nil, manifests(i)...)
		}
		for range b.N {
			select {
			case <-names:
			case <-time.After(await.Patience):
				b.Fatal("the last RoleBinding of a ManifestWork was not created in time")
			}
		}
	})
}

// warm waits until the agent has applied a first ManifestWork.
func warm(c *cluster) {
	name := c.create("-warm", nil, configMap("warm", "one"))
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
}
