package csr

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// Agents may read only the requests that they have created, regardless of the label.
func TestAgentsReadTheirOwnRequestsOnly(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	driver := Driver{Requests: certificateslisters.NewCertificateSigningRequestLister(indexer)}
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(name, label string, age int, groups ...string) {
		t.Helper()
		err := indexer.Add(&certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: label}, CreationTimestamp: metav1.NewTime(began.Add(-time.Duration(age) * time.Minute)),
			},
			Spec: certificatesv1.CertificateSigningRequestSpec{Groups: groups},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	record := &registerv1alpha1.ManagedClusterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
	create := rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}}
	add("of-another", "cluster2", 0, "system:open-cluster-management:cluster2")
	add("labelled-by-another", "cluster1", 0, "system:open-cluster-management:cluster2")
	add("of-the-bootstrap-identity", "cluster1", 0, "system:serviceaccounts")
	if rules := driver.Rules(record); !reflect.DeepEqual(rules, []rbacv1.PolicyRule{create}) {
		t.Errorf("Rules() of a cluster without requests = %v, want only create", rules)
	}

	var want []string
	for i := range DefaultMaxRequests + 5 {
		name := fmt.Sprintf("own-%03d", i)
		add(name, "cluster1", i, "system:authenticated", "system:open-cluster-management:cluster1")
		if i < DefaultMaxRequests {
			want = append(want, name)
		}
	}
	rules := driver.Rules(record)
	if len(rules) != 2 || !slices.Equal(rules[1].ResourceNames, want) || !slices.Equal(rules[1].Verbs, []string{"get", "list", "watch"}) {
		t.Errorf("Rules() = %v, want get, list and watch on the newest %d requests", rules, DefaultMaxRequests)
	}
}
