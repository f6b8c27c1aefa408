package rehome

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

const arnOfCluster = "arn:aws:eks:us-east-1:123456789012:cluster/managed-cluster1"

func archived(kind, name, uid string, fields map[string]any, owners ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "uid": uid}}}
	for field, value := range fields {
		object.Object[field] = value
	}
	var references []any
	for _, owner := range owners {
		references = append(references, map[string]any{"apiVersion": "v1", "kind": "Owner", "name": owner, "uid": owner})
	}
	if len(references) > 0 {
		_ = unstructured.SetNestedSlice(object.Object, references, "metadata", "ownerReferences")
	}
	return object
}

func TestArchive(t *testing.T) {
	a := &archive{
		Format: archiveFormat, ID: "id", Time: time.Unix(1_700_000_000, 0).UTC(), Hub: "https://hub", Epoch: 3, Version: "v1",
		Namespaces: []archivedNamespace{{Name: "cluster1", Labels: map[string]string{"a": "b"}}},
		Objects:    []*unstructured.Unstructured{archived("ManagedCluster", "cluster1", "u1", nil), archived("ManifestWork", "work", "u2", nil, "u1")},
	}
	path := filepath.Join(t.TempDir(), "hub.gz")
	if err := os.WriteFile(path, []byte("earlier"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := a.write(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file = %v, %v, want 600", info.Mode(), err)
	}
	got, err := readArchive(path)
	if err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("readArchive() = %+v, %v, want %+v", got, err, a)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for length := range content {
		if _, err := decodeArchive(bytes.NewReader(content[:length])); err == nil {
			t.Fatalf("decodeArchive() of the first %d of %d bytes = no error, want one", length, len(content))
		}
	}
	damaged := bytes.Clone(content)
	damaged[len(damaged)-8] ^= 1 // the checksum
	if _, err := decodeArchive(bytes.NewReader(damaged)); err == nil {
		t.Error("decodeArchive() of a file with another checksum = no error, want one")
	}
	for name, test := range map[string]struct {
		content string
		want    string
	}{
		"a part":          {`{"format":1,"objects":[`, "not an export of a hub: unexpected end of JSON input"},
		"two exports":     {`{"format":1} {"format":1}`, "not an export of a hub: invalid character '{' after top-level value"},
		"an empty object": {`{"format":1,"objects":[null]}`, "not an export of a hub: it contains an empty object"},
		"something else":  {`{}`, "format 0, want 1: use the clusteradm of the release that wrote it"},
	} {
		var compressed bytes.Buffer
		writer := gzip.NewWriter(&compressed)
		if _, err := writer.Write([]byte(test.content)); err != nil || writer.Close() != nil {
			t.Fatal(err)
		}
		if _, err := decodeArchive(&compressed); err == nil || err.Error() != test.want {
			t.Errorf("decodeArchive() of a file with %s = %v, want %q", name, err, test.want)
		}
	}
	a.Format = 2
	if err := a.write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := readArchive(path); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("readArchive() of another format = %v, want an error", err)
	}
}

// TestPlan checks that owners are imported before their dependents, that owners that the new hub does not have are
// dropped, and what identifies the clusters there.
func TestPlan(t *testing.T) {
	csr := map[string]any{"spec": map[string]any{"driver": "csr"}, "status": map[string]any{"csr": map[string]any{"agents": []any{"a"}}}}
	claims := map[string]any{"status": map[string]any{
		"clusterClaims": []any{map[string]any{"name": rehoming.KeyClaim, "value": "hash"}},
		"acceptance":    map[string]any{"accepted": true, "decidedAt": "2033-01-01T00:00:00Z"},
	}}
	work := archived("ManifestWork", "owned", "w1", nil, "p1", "gone")
	unowned := archived("ManifestWork", "unowned", "w2", nil, "gone")
	registration := archived(handover.KindRegistration, "cluster1", "r1", csr)
	byRole := archived(handover.KindRegistration, "eks", "r2", map[string]any{
		"spec": map[string]any{"driver": "aws-irsa", "irsa": map[string]any{"managedClusterARN": arnOfCluster}}, "status": map[string]any{"irsa": map[string]any{"hubRoleARN": "former"}},
	})
	withoutDriver := byRole.DeepCopy()
	cluster := archived(handover.KindManagedCluster, "cluster1", "c1", claims)
	a := &adoption{
		Environment: cli.Environment{IOStreams: genericiooptions.IOStreams{Out: &bytes.Buffer{}}}, epoch: rehoming.Epoch{Number: 2, Hub: "b"}, at: time.Unix(1_700_000_000, 0).UTC(),
		offersRoles: true,
		archive: &archive{Objects: []*unstructured.Unstructured{
			work, unowned, archived("ClusterPermission", "permission", "p1", nil), registration, byRole, cluster,
			archived(handover.KindManagedCluster, "unregistered", "c3", map[string]any{"spec": map[string]any{"hubAcceptsClient": true}}), archived(handover.KindManagedCluster, "requested", "c4", nil),
			archived(handover.KindRegistration, "silent", "r3", csr), archived(handover.KindManagedCluster, "silent", "c2", nil), archived(handover.KindClusterSet, "default", "s1", nil),
		}},
	}
	a.plan()
	position := map[types.UID]int{}
	for i, wave := range a.waves {
		for _, object := range wave {
			position[object.GetUID()] = i + 1
		}
	}
	if position["r1"] == 0 || position["r1"] >= position["c1"] || position["p1"] >= position["w1"] || position["w2"] == 0 || position["r2"] == 0 || position["s1"] != 0 || position["c3"] != 0 || position["c4"] == 0 {
		t.Errorf("positions = %v, want registrations before clusters, owners before dependents, and neither the default set nor an accepted cluster without registration", position)
	}
	if owners := work.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != "p1" || len(unowned.GetOwnerReferences()) != 0 {
		t.Errorf("owners = %v and %v, want only the exported one", owners, unowned.GetOwnerReferences())
	}
	if got := registration.GetAnnotations(); got[rehoming.KeyAnnotation] != "hash" || got[rehoming.AdoptedAnnotation] != "2023-11-14T22:13:20Z" || registration.Object["status"] != nil {
		t.Errorf("registration = %v, want the key and the time, and no certificates of the other hub", registration.Object)
	}
	if got := registration.GetAnnotations()[rehoming.DecisionAnnotation]; got != "2033-01-01T00:00:00Z" {
		t.Errorf("adopted decision = %q, want that of the cluster, which may be newer than the adoption", got)
	}
	if got, found := byRole.GetAnnotations()[rehoming.DecisionAnnotation]; got != "" || !found {
		t.Errorf("adopted decision of a cluster without a decision = %q, %t, want that there was none", got, found)
	}
	if got := cluster.GetAnnotations()[rehoming.EpochAnnotation]; got != "0/b" {
		t.Errorf("epoch before all objects are imported = %q, want 0/b, which no agent obeys", got)
	}
	if !reflect.DeepEqual(a.unproved, []string{"silent"}) {
		t.Errorf("clusters to accept again = %v, want silent", a.unproved)
	}
	claim, _, _ := unstructured.NestedString(byRole.Object, "spec", "irsa", "managedClusterARN")
	if claim != arnOfCluster || byRole.Object["status"] != nil || len(a.roles) != 1 || a.roles[0].arn != arnOfCluster || a.roles[0].former.HubRoleARN != "former" {
		t.Errorf("registration by roles = %v, clusters = %+v, want the claim, and the roles of the other hub only in the summary", byRole.Object, a.roles)
	}
	// On a hub without the driver, the cluster has to prove its identity with its key.
	b := &adoption{archive: &archive{Objects: []*unstructured.Unstructured{withoutDriver}}}
	b.plan()
	spec, _, _ := unstructured.NestedMap(withoutDriver.Object, "spec")
	if !reflect.DeepEqual(spec, map[string]any{"driver": "csr"}) || withoutDriver.GetAnnotations()[rehoming.AdoptedAnnotation] == "" {
		t.Errorf("registration on a hub without the driver = %v, want an adopted one with certificates", withoutDriver.Object)
	}
}
