package inventory_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestInventory(t *testing.T) {
	framework.UseShared(t)
	m := framework.Must(sharedManaged())(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *managed)
	}{
		{"Properties", testProperties},
		{"NoSecretValues", testNoSecretValues},
		{"CustomResources", testCustomResources},
		{"Edges", testEdges},
		{"Mismatch", testMismatch},
		{"Heartbeat", testHeartbeat},
		{"Retry", testRetry},
		{"Outage", testOutage},
		{"Restart", testRestart},
		{"NotServed", testNotServed},
		{"Selection", testSelection},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, m) })
	}
}

// testProperties checks the properties that the agent reports for the kinds of objects.
func testProperties(t *testing.T, m *managed) {
	ns := m.namespace(t, "properties")
	hub := newEndpoint(t, "c1")
	c, _ := m.run(t, "c1", hub, inventory.Configuration{Annotations: true})
	m.apply(t, ns, v1("nodes"), `{apiVersion: v1, kind: Node, metadata: {name: properties-node, labels: {node-role.kubernetes.io/worker: ""}},
		status: {capacity: {cpu: "4", memory: 16Gi}, allocatable: {memory: 15Gi}, addresses: [{type: InternalIP, address: 10.0.0.1}],
		conditions: [{type: Ready, status: "True"}], nodeInfo: {architecture: amd64, osImage: Linux, systemUUID: u-1, kubeletVersion: v1.36.3,
		bootID: b, containerRuntimeVersion: c, kernelVersion: k, kubeProxyVersion: p, machineID: m, operatingSystem: linux}}}`)
	m.apply(t, ns, v1("serviceaccounts"), `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: NS}}`)
	m.apply(t, ns, v1("pods"), `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS, labels: {app: web}, annotations: {short: yes-, long: "`+strings.Repeat("x", 65)+`"}},
		spec: {serviceAccountName: robot, containers: [{name: web, image: "nginx:1"}], initContainers: [{name: init, image: "busybox:1"}]},
		status: {phase: Running, hostIP: 10.0.0.1, podIP: 10.1.0.1, startTime: "2026-01-01T00:00:00Z",
		conditions: [{type: Ready, status: "False"}, {type: Initialized, status: "True"}],
		containerStatuses: [{name: web, image: "nginx:1", imageID: "", ready: false, restartCount: 7, state: {waiting: {reason: CrashLoopBackOff}}}]}}`)
	m.apply(t, ns, v1of("apps", "deployments"), `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS},
		spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "nginx:1"}]}}},
		status: {replicas: 3, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 3, conditions: [{type: Available, status: "True"}]}}`)
	m.apply(t, ns, v1of("apps", "daemonsets"), `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: NS},
		spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: "a:1"}]}}},
		status: {currentNumberScheduled: 4, desiredNumberScheduled: 5, numberMisscheduled: 0, numberReady: 3, numberAvailable: 2, updatedNumberScheduled: 1}}`)
	m.apply(t, ns, v1of("apps", "statefulsets"), `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: NS},
		spec: {replicas: 2, serviceName: db, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: a, image: "a:1"}]}}},
		status: {replicas: 2, readyReplicas: 1}}`)
	m.apply(t, ns, v1("services"), `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30123}]}}`)
	m.apply(t, ns, v1("persistentvolumeclaims"), `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: NS},
		spec: {accessModes: [ReadWriteOnce], volumeName: properties-pv, storageClassName: "fast", resources: {requests: {storage: 1Gi}}}, status: {phase: Bound, capacity: {storage: 1Gi}}}`)
	m.apply(t, ns, v1("persistentvolumes"), `{apiVersion: v1, kind: PersistentVolume, metadata: {name: properties-pv},
		spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}, persistentVolumeReclaimPolicy: Retain, claimRef: {namespace: NS, name: data}}, status: {phase: Bound}}`)
	m.apply(t, ns, v1of("batch", "jobs"), `{apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: NS},
		spec: {completions: 2, parallelism: 1, template: {spec: {restartPolicy: Never, containers: [{name: a, image: "a:1"}]}}}}`)
	m.apply(t, ns, v1of("batch", "cronjobs"), `{apiVersion: batch/v1, kind: CronJob, metadata: {name: often, namespace: NS},
		spec: {schedule: "*/5 * * * *", suspend: true, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: "a:1"}]}}}}}}`)
	m.apply(t, ns, v1of("storage.k8s.io", "storageclasses"), `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: example.com/fast, reclaimPolicy: Retain}`)
	m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS, labels: {team: a}}, data: {key: hidden}}`)

	hub.has(t, "Pod", "web", map[string]any{
		"namespace": ns, "kind_plural": "pods", "apiversion": "v1", "status": "CrashLoopBackOff", "restarts": 7, "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
		"container": []any{"web"}, "initContainer": []any{"init"}, "image": []any{"nginx:1"}, "startedAt": "2026-01-01T00:00:00Z",
		"condition": map[string]any{"Ready": "False", "Initialized": "True"}, "label": map[string]any{"app": "web"}, "annotation": map[string]any{"short": "yes-"},
	})
	hub.has(t, "Node", "properties-node", map[string]any{
		"architecture": "amd64", "cpu": 4, "osImage": "Linux", "_systemUUID": "u-1", "role": []any{"worker"}, "status": "Ready", "ipAddress": "10.0.0.1",
		"memoryAllocatable": float64(15 << 30), "memoryCapacity": float64(16 << 30), "condition": map[string]any{"Ready": "True"},
	})
	hub.has(t, "Deployment", "web", map[string]any{"apigroup": "apps", "available": 2, "current": 3, "desired": 3, "ready": 2, "updated": 3, "condition": map[string]any{"Available": "True"}})
	hub.has(t, "DaemonSet", "agent", map[string]any{"available": 2, "current": 4, "desired": 5, "ready": 3, "updated": 1})
	hub.has(t, "StatefulSet", "db", map[string]any{"current": 2, "desired": 2, "ready": 1, "available": 0})
	hub.has(t, "Service", "web", map[string]any{"type": "NodePort", "port": []any{"80:30123/TCP"}})
	hub.has(t, "PersistentVolumeClaim", "data", map[string]any{
		"status": "Bound", "volumeName": "properties-pv", "storageClassName": "fast", "capacity": "1Gi", "accessMode": []any{"ReadWriteOnce"},
		"request": "1Gi", "requestedStorage": float64(1 << 30), "volumeMode": "Filesystem",
	})
	hub.has(t, "PersistentVolume", "properties-pv", map[string]any{
		"status": "Bound", "type": "HostPath", "capacity": "1Gi", "accessMode": []any{"ReadWriteOnce"}, "reclaimPolicy": "Retain", "claimRef": ns + "/data",
	})
	hub.has(t, "Job", "once", map[string]any{"completions": 2, "parallelism": 1, "successful": 0, "status": "Running"})
	hub.has(t, "CronJob", "often", map[string]any{"active": 0, "schedule": "*/5 * * * *", "suspend": true})
	hub.has(t, "Namespace", ns, map[string]any{"status": "Active"})
	hub.has(t, "StorageClass", "fast", map[string]any{"provisioner": "example.com/fast", "reclaimPolicy": "Retain"})
	hub.has(t, "ConfigMap", "settings", map[string]any{"label": map[string]any{"team": "a"}, "data": nil})
	hub.has(t, "ClusterRole", "cluster-admin", map[string]any{"apigroup": "rbac.authorization.k8s.io"})
	hub.relates(t, []string{"PersistentVolumeClaim data boundTo PersistentVolume properties-pv", "Pod web attachedTo ServiceAccount robot"}, nil)
	hub.agrees(t, c)
	uid, properties := hub.find("Pod", "web")
	pod, err := m.kube.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || uid != "c1/"+string(pod.UID) || properties["created"] != pod.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z") {
		t.Errorf("UID = %s, created = %v, want those of the Pod (error %v)", uid, properties["created"], err)
	}
	lock(hub, func() {
		if !hub.compressed {
			t.Error("compressed reports = 0, want at least 1")
		}
		for uid, resource := range hub.resources {
			if resource.Kind == "Event" {
				t.Errorf("kind of %s = Event, want no Events", uid)
			}
		}
	})
}

// testNoSecretValues checks that the agent reports no values of Secrets and ConfigMaps, not even in
// the annotation last-applied-configuration.
func testNoSecretValues(t *testing.T, m *managed) {
	ns := m.namespace(t, "secrets-stay")
	const value = "s3cr3t-value"
	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	hub := newEndpoint(t, "c1")
	c, _ := m.run(t, "c1", hub, inventory.Configuration{Annotations: true})
	applied := map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"p":"` + encoded + `"}}`, "note": "seen"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password", Annotations: applied}, Data: map[string][]byte{"p": []byte(value)}}
	if _, err := m.kube.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Annotations: applied}, Data: map[string]string{"p": value}}
	if _, err := m.kube.CoreV1().ConfigMaps(ns).Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hub.has(t, "Secret", "password", map[string]any{"annotation": map[string]any{"note": "seen"}})
	hub.has(t, "ConfigMap", "settings", map[string]any{"annotation": map[string]any{"note": "seen"}})
	hub.agrees(t, c)
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if wire := hub.wire.String(); strings.Contains(wire, value) || strings.Contains(wire, encoded) || !strings.Contains(wire, "password") {
		t.Error("the reports contain a value of the Secret or not its name, want only the name")
	}
}

const widgets = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com},
	spec: {group: example.com, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
	versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

// testCustomResources checks that the agent reports objects of a kind that is served later, with the
// configured fields. After the kind is deleted, the agent removes the objects.
func testCustomResources(t *testing.T, m *managed) {
	ns := m.namespace(t, "customresources")
	hub := newEndpoint(t, "c1")
	c, _ := m.run(t, "c1", hub, inventory.Configuration{Resources: []inventory.ResourceFields{{
		Resource: "example.com/widgets", Conditions: true,
		Fields: []inventory.Field{{Name: "color", Path: ".spec.color"}, {Name: "part", Path: "{.spec.parts[*].name}"}, {Name: "none", Path: ".spec.none"}},
	}}})
	hub.agrees(t, c)
	definitions := v1of("apiextensions.k8s.io", "customresourcedefinitions")
	m.apply(t, ns, definitions, widgets)
	await.Eventually(t, "widgets are served", func() error {
		_, err := m.dynamic.Resource(v1of("example.com", "widgets")).List(t.Context(), metav1.ListOptions{})
		return err
	})
	m.apply(t, ns, v1of("example.com", "widgets"), `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w1, namespace: NS},
		spec: {color: red, parts: [{name: a}, {name: b}]}, status: {conditions: [{type: Ready, status: "True"}]}}`)
	hub.has(t, "Widget", "w1", map[string]any{
		"apigroup": "example.com", "color": "red", "part": []any{"a", "b"}, "none": nil, "condition": map[string]any{"Ready": "True"},
	})
	if err := m.dynamic.Resource(definitions).Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hub.lacks(t, "Widget", "w1")
	hub.lacks(t, "CustomResourceDefinition", "widgets.example.com")
	hub.agrees(t, c)
}

func pod(name, spec, metadata string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: NS, labels: {app: edges}%s}, spec: {%s containers: [{name: a, image: "a:1"}]}}`, name, metadata, spec)
}

// testEdges checks that edges follow the objects, regardless of which end is created or deleted first.
func testEdges(t *testing.T, m *managed) {
	ns := m.namespace(t, "edges")
	hub := newEndpoint(t, "c1")
	c, _ := m.run(t, "c1", hub, inventory.Configuration{})
	hub.agrees(t, c)
	var full int
	lock(hub, func() { full = hub.full })
	await.Eventually(t, "ServiceAccount default, which Pods require, exists", func() error {
		_, err := m.kube.CoreV1().ServiceAccounts(ns).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	deployment := m.apply(t, ns, v1of("apps", "deployments"), `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: NS},
		spec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: a, image: "a:1"}]}}}}`)["d"]
	replicas := m.apply(t, ns, v1of("apps", "replicasets"), `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: r, namespace: NS,
		ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: d, uid: `+deployment+`}]},
		spec: {replicas: 0, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: a, image: "a:1"}]}}}}`)["r"]
	m.apply(t, ns, v1("pods"), pod("p", `nodeName: edges-node, volumes: [{name: c, configMap: {name: conf}}, {name: s, secret: {secretName: sec}}, {name: v, persistentVolumeClaim: {claimName: claim}}],`,
		`, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: `+replicas+`}]`))
	owned := []string{"Pod p ownedBy ReplicaSet r", "Pod p ownedBy Deployment d", "ReplicaSet r ownedBy Deployment d", "Pod p attachedTo ServiceAccount default"}
	hub.relates(t, owned, nil)
	m.apply(t, ns, v1("nodes"), `{apiVersion: v1, kind: Node, metadata: {name: edges-node}}`)
	m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: conf, namespace: NS}}`)
	m.apply(t, ns, v1("secrets"), `{apiVersion: v1, kind: Secret, metadata: {name: sec, namespace: NS}}`)
	m.apply(t, ns, v1("persistentvolumeclaims"), `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: claim, namespace: NS}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`)
	m.apply(t, ns, v1("services"), `{apiVersion: v1, kind: Service, metadata: {name: s, namespace: NS}, spec: {selector: {app: edges}, ports: [{port: 80}]}}`)
	named := []string{"Pod p runsOn Node edges-node", "Pod p attachedTo ConfigMap conf", "Pod p attachedTo Secret sec", "Pod p attachedTo PersistentVolumeClaim claim", "Service s usedBy Pod p"}
	hub.relates(t, append(named, owned...), nil)

	m.apply(t, ns, v1("pods"), pod("q", "", ""))
	hub.relates(t, []string{"Service s usedBy Pod q"}, nil)
	if _, err := m.kube.CoreV1().Pods(ns).Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	hub.relates(t, []string{"Service s usedBy Pod q"}, []string{"Service s usedBy Pod p"})
	if _, err := m.kube.CoreV1().Services(ns).Patch(t.Context(), "s", types.MergePatchType, []byte(`{"spec":{"selector":{"app":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	hub.relates(t, []string{"Service s usedBy Pod p"}, []string{"Service s usedBy Pod q"})
	orphan := metav1.DeletePropagationOrphan
	for _, err := range []error{
		m.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), "conf", metav1.DeleteOptions{}),
		m.kube.AppsV1().Deployments(ns).Delete(t.Context(), "d", metav1.DeleteOptions{PropagationPolicy: &orphan}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	hub.relates(t, []string{"Pod p ownedBy ReplicaSet r"}, []string{"Pod p attachedTo ConfigMap conf", "Pod p ownedBy Deployment d", "ReplicaSet r ownedBy Deployment d"})
	hub.agrees(t, c)
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if hub.full != full {
		t.Errorf("further full reports = %d, want 0", hub.full-full)
	}
}

// testMismatch checks that the agent sends a full report if the hub has lost data.
func testMismatch(t *testing.T, m *managed) {
	ns := m.namespace(t, "mismatch")
	hub := newEndpoint(t, "c1")
	c, _ := m.run(t, "c1", hub, inventory.Configuration{})
	hub.agrees(t, c)
	for i, lose := range []func(){
		func() { delete(hub.resources, uidOf(hub, "Namespace", ns)) },
		func() { clear(hub.edges) },
		func() { clear(hub.resources); clear(hub.edges) },
	} {
		lock(hub, lose)
		name := fmt.Sprintf("trigger-%d", i)
		m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, namespace: NS}}`)
		hub.has(t, "Namespace", ns, nil)
		hub.agrees(t, c)
	}
}

// testHeartbeat checks that the agent detects a loss of data on the hub even if no object changes.
func testHeartbeat(t *testing.T, m *managed) {
	ns := m.namespace(t, "quiet")
	hub := newEndpoint(t, "c1")
	often := quick()
	often.Heartbeat = 50 * time.Millisecond
	c, _ := m.runTimed(t, "c1", hub, inventory.Configuration{Include: []string{"namespaces"}}, often)
	hub.agrees(t, c)
	lock(hub, func() { clear(hub.resources); clear(hub.edges) })
	hub.has(t, "Namespace", ns, nil)
	hub.agrees(t, c)
}

func lock(hub *endpoint, do func()) {
	hub.mu.Lock()
	defer hub.mu.Unlock()
	do()
}

// uidOf returns the UID of a resource with a kind and name. The caller must hold the lock.
func uidOf(hub *endpoint, kind, name string) string {
	for uid, resource := range hub.resources {
		if resource.Kind == kind && string(resource.Properties["name"]) == fmt.Sprintf("%q", name) {
			return uid
		}
	}
	return ""
}

// testRetry checks that the hub receives all changes after reports were rejected, failed, or were
// applied without a response.
func testRetry(t *testing.T, m *managed) {
	ns := m.namespace(t, "refused")
	hub := newEndpoint(t, "c1")
	c, _ := m.run(t, "c1", hub, inventory.Configuration{})
	hub.agrees(t, c)
	for i, test := range []struct {
		late bool
		code int
	}{{false, http.StatusTooManyRequests}, {false, http.StatusServiceUnavailable}, {true, http.StatusGatewayTimeout}, {true, 0}, {false, http.StatusUnsupportedMediaType}} {
		name := fmt.Sprintf("busy-%d", i)
		m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`-gone, namespace: NS}}`)
		hub.has(t, "ConfigMap", name+"-gone", nil)
		hub.answer(test.late, func(w http.ResponseWriter) bool {
			if test.code == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(test.code)
			return true
		})
		m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, namespace: NS}}`)
		if err := m.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), name+"-gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		var asked int
		lock(hub, func() { asked = hub.asked })
		await.Eventually(t, "the agent has sent 2 more reports", func() error {
			hub.mu.Lock()
			defer hub.mu.Unlock()
			if hub.asked < asked+2 {
				return fmt.Errorf("reports = %d", hub.asked-asked)
			}
			return nil
		})
		hub.answer(false, nil)
		hub.has(t, "ConfigMap", name, nil)
		hub.lacks(t, "ConfigMap", name+"-gone")
		hub.agrees(t, c)
	}
}

// testOutage checks that the agent reports changes that happen during an outage of the hub after it.
func testOutage(t *testing.T, m *managed) {
	ns := m.namespace(t, "outage")
	hub := newEndpoint(t, "c1")
	c, _ := m.run(t, "c1", hub, inventory.Configuration{})
	m.apply(t, ns, v1("configmaps"),
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: deleted, namespace: NS}}`, `{apiVersion: v1, kind: ConfigMap, metadata: {name: changed, namespace: NS}}`)
	hub.has(t, "ConfigMap", "changed", nil)
	hub.agrees(t, c)
	objects := c.Backlog().Objects // One object is deleted and one is created, so the number stays.
	hub.answer(false, func(http.ResponseWriter) bool { panic(http.ErrAbortHandler) })
	if err := m.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.kube.CoreV1().ConfigMaps(ns).Patch(t.Context(), "changed", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		name := fmt.Sprintf("passing-%d", i)
		m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, namespace: NS}}`)
		if err := m.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: NS}}`)
	await.Eventually(t, "the backlog contains all changes", func() error {
		if backlog := c.Backlog(); backlog.Objects != objects || backlog.Changed < 2 || backlog.Deleted > 50 {
			return fmt.Errorf("Backlog() = %+v, want %d objects, 2 of them changed, and at most 50 deleted", backlog, objects)
		}
		return nil
	})
	hub.answer(false, nil)
	hub.has(t, "ConfigMap", "new", nil)
	hub.has(t, "ConfigMap", "changed", map[string]any{"label": map[string]any{"a": "b"}})
	hub.lacks(t, "ConfigMap", "deleted")
	hub.agrees(t, c)
}

// testRestart checks that a restarted agent reports the changes that happened while it was stopped.
func testRestart(t *testing.T, m *managed) {
	ns := m.namespace(t, "restart")
	hub := newEndpoint(t, "c1")
	c, stop := m.run(t, "c1", hub, inventory.Configuration{})
	m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: before, namespace: NS}}`)
	hub.has(t, "ConfigMap", "before", nil)
	hub.agrees(t, c)
	stop()
	if err := m.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: after, namespace: NS}}`)
	again, _ := m.run(t, "c1", hub, inventory.Configuration{})
	hub.has(t, "ConfigMap", "after", nil)
	hub.lacks(t, "ConfigMap", "before")
	hub.agrees(t, again)
}

// testNotServed checks a hub that does not serve inventories. The agent retries, and reads no objects
// of the cluster until the hub serves inventories.
func testNotServed(t *testing.T, m *managed) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		hub := newEndpoint(t, "c1")
		hub.answer(false, func(w http.ResponseWriter) bool {
			http.Error(w, "no", code)
			return true
		})
		c, stop := m.run(t, "c1", hub, inventory.Configuration{})
		await.Eventually(t, "3 reports were rejected and Unserved returns true", func() error {
			hub.mu.Lock()
			defer hub.mu.Unlock()
			if hub.refused < 3 || !c.Unserved() {
				return fmt.Errorf("rejected reports = %d, Unserved() = %t", hub.refused, c.Unserved())
			}
			return nil
		})
		if objects := c.Backlog().Objects; objects != 0 || c.Synced() {
			t.Errorf("Backlog().Objects = %d, Synced() = %t, want 0, false for a hub that serves no inventories", objects, c.Synced())
		}
		hub.answer(false, nil)
		hub.has(t, "Namespace", "default", nil)
		hub.agrees(t, c)
		if c.Unserved() {
			t.Error("Unserved() = true, want false")
		}
		stop()
	}
}

// testSelection checks that the agent does not report excluded resources and namespaces.
func testSelection(t *testing.T, m *managed) {
	ns := m.namespace(t, "selection")
	hub := newEndpoint(t, "c1")
	configuration := inventory.Configuration{Include: []string{"*", "apps/*"}, Exclude: []string{"secrets", "*/replicasets"}}
	configuration.Namespaces.Exclude = []string{"selection-*", "kube-*"}
	m.namespace(t, "selection-excluded")
	m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: in, namespace: NS}}`)
	m.apply(t, ns, v1("secrets"), `{apiVersion: v1, kind: Secret, metadata: {name: in, namespace: NS}}`)
	m.apply(t, "selection-excluded", v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: out, namespace: NS}}`)
	c, _ := m.run(t, "c1", hub, configuration)
	hub.has(t, "ConfigMap", "in", nil)
	hub.agrees(t, c)
	hub.lacks(t, "Secret", "in")
	hub.lacks(t, "ConfigMap", "out")
	hub.lacks(t, "Namespace", "selection-excluded")
	hub.lacks(t, "ClusterRole", "cluster-admin")
	m.apply(t, "selection-excluded", v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: out-later, namespace: NS}}`)
	m.apply(t, ns, v1("configmaps"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: in-later, namespace: NS}}`)
	hub.has(t, "ConfigMap", "in-later", nil)
	hub.lacks(t, "ConfigMap", "out-later")
}
