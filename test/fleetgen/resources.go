package fleetgen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func (c *cluster) addNamespaces() {
	for _, name := range c.namespaces {
		r := c.row(namespaceKind, name, "", []string{
			"kubernetes.io/metadata.name", name, "team", pick(c.r, teams), "env", pick(c.r, environments),
		})
		r.set("status", "Active")
		c.add(r)
	}
}

func (c *cluster) addNodes() {
	for i := range c.nodeCount() {
		name := fmt.Sprintf("ip-10-%d-%d-%d.ec2.internal", c.index, i/4, i)
		r := c.row(nodeKind, name, "", []string{
			"kubernetes.io/hostname", name, "kubernetes.io/arch", "amd64", "node-role.kubernetes.io/worker", "",
			"topology.kubernetes.io/region", pick(c.r, regions), "node.kubernetes.io/instance-type", pick(c.r, machines),
		})
		role := []string{"worker"}
		if i <= 2 {
			role = []string{"control-plane", "master"}
		}
		r.set("architecture", "amd64", "cpu", pick(c.r, processors), "osImage", "Linux CoreOS 4."+strconv.Itoa(12+c.r.IntN(6)), "_systemUUID", c.uuid(), "role", role,
			"status", "Ready", "ipAddress", fmt.Sprintf("10.%d.%d.%d", c.index, i/4, i), "memoryAllocatable", 32212254720, "memoryCapacity", 33554432000)
		r.pairs("condition", "Ready", "True", "MemoryPressure", "False", "DiskPressure", "False")
		c.nodes = append(c.nodes, object{uid: c.add(r), name: name})
	}
}

func (c *cluster) addDeployments(count int) []object {
	deployments := make([]object, 0, count)
	for range count {
		namespace, app := c.namespace(), pick(c.r, apps)
		name := app
		if c.r.Float64() >= 0.4 {
			name += "-" + pick(c.r, components)
		}
		labels := c.labels(app, namespace)
		r := c.row(kindsByName["Deployment"], name, namespace, labels)
		want, condition := pick(c.r, replicas), "True"
		ready := want
		if c.r.Float64() >= 0.95 {
			ready, condition = want-1, "False"
		}
		r.pairs("annotation", c.annotations()...)
		r.set("available", ready, "current", want, "ready", ready, "desired", want)
		r.pairs("condition", "Available", condition, "Progressing", "True")
		deployments = append(deployments, object{uid: c.add(r), name: name, namespace: namespace, app: app, labels: labels})
	}
	return deployments
}

// addReplicaSets adds the current ReplicaSet of each Deployment, and then old ReplicaSets. It
// returns the current ones.
func (c *cluster) addReplicaSets(count int, deployments []object) []object {
	var live []object
	for i := range count {
		d := deployments[i%len(deployments)]
		hash := c.suffix(9)
		name, labels := d.name+"-"+hash, append(slices.Clone(d.labels), "pod-template-hash", hash)
		r := c.row(kindsByName["ReplicaSet"], name, d.namespace, labels)
		size := 0
		if i < len(deployments) {
			size = 2
		}
		r.pairs("annotation", c.annotations()...)
		r.set("current", size, "desired", size)
		uid := c.add(r)
		c.edge(uid, "ReplicaSet", d.uid, "Deployment", "ownedBy")
		if size > 0 {
			live = append(live, object{uid: uid, name: name, namespace: d.namespace, app: d.app, labels: labels, hash: hash, owner: d.uid})
		}
	}
	return live
}

func (c *cluster) addPods(count int, sets []object) {
	for i := range count {
		set := sets[i%len(sets)]
		if c.r.Float64() < 0.3 {
			set = pick(c.r, sets)
		}
		node := pick(c.r, c.nodes)
		r := c.row(kindsByName["Pod"], set.name+"-"+c.suffix(5), set.namespace, set.labels)
		c.podProperties(r, set, node)
		uid := c.add(r)
		c.edge(uid, "Pod", set.uid, "ReplicaSet", "ownedBy")
		c.edge(uid, "Pod", set.owner, "Deployment", "ownedBy")
		c.edge(uid, "Pod", node.uid, "Node", "runsOn")
		if list := c.configMaps[set.namespace]; len(list) > 0 {
			first, second := pick(c.r, list), pick(c.r, list)
			c.edge(uid, "Pod", first, "ConfigMap", "attachedTo")
			if second != first {
				c.edge(uid, "Pod", second, "ConfigMap", "attachedTo")
			}
		}
		if list := c.secrets[set.namespace]; len(list) > 0 {
			c.edge(uid, "Pod", pick(c.r, list), "Secret", "attachedTo")
		}
		w := workload{set.namespace, set.app}
		c.pods[w] = append(c.pods[w], uid)
	}
}

func (c *cluster) podProperties(r *row, set, node object) {
	sidecar := c.r.Float64() < 0.35
	status := c.status()
	ready := "False"
	if status == "Running" {
		ready = "True"
	}
	restarts := 0
	if c.r.Float64() >= 0.8 {
		restarts = 1 + c.r.IntN(59)
	}
	sum := 0
	for _, letter := range []byte(node.name) {
		sum += int(letter)
	}
	team, version := set.labels[9], set.labels[11]
	image := "quay.io/" + team + "/" + set.app + ":" + version
	r.pairs("annotation", "openshift.io/scc", "restricted-v2", "example.com/owner", team, "k8s.ovn.org/pod-networks", "default")
	r.set("hostIP", "10."+strconv.Itoa(c.index)+".0."+strconv.Itoa(sum%250), "podIP", "10."+c.address(128+c.index%100), "restarts", restarts, "status", status)
	if sidecar {
		r.set("container", []string{set.app, "istio-proxy"}, "initContainer", []string{"istio-init"},
			"image", []string{image, "docker.io/istio/proxyv2:1.20." + strconv.Itoa(c.r.IntN(5))})
	} else {
		r.set("container", []string{set.app}, "image", []string{image})
	}
	r.set("startedAt", c.timestamp(), "_ownerUID", set.uid)
	r.pairs("condition", "Ready", ready, "PodScheduled", "True", "Initialized", "True", "ContainersReady", ready)
}

// addOthers adds resources of a kind to which no earlier resource refers.
func (c *cluster) addOthers(kindName string, count int) {
	k := kindsByName[kindName]
	for range count {
		namespace := ""
		if k.namespaced {
			namespace = c.namespace()
		}
		app := pick(c.r, apps)
		name := app + "-" + strings.ToLower(k.name)
		if c.r.Float64() < 0.7 {
			name = app + "-" + c.suffix(6)
		}
		var labels []string
		if c.r.Float64() < 0.85 {
			labels = c.labels(app, namespace)
		}
		r := c.row(k, name, namespace, labels)
		r.pairs("annotation", c.annotations()...)
		c.special(r, k.name, app)
		uid := c.add(r)
		switch k.name {
		case "ConfigMap":
			c.configMaps[namespace] = append(c.configMaps[namespace], uid)
		case "Secret":
			c.secrets[namespace] = append(c.secrets[namespace], uid)
		case "Service":
			pods := c.pods[workload{namespace, app}]
			for _, pod := range pods[:min(8, len(pods))] {
				c.edge(uid, "Service", pod, "Pod", "usedBy")
			}
		}
	}
}

// special adds the properties that only some kinds have.
func (c *cluster) special(r *row, kindName, app string) {
	switch kindName {
	case "Service":
		r.set("type", pick(c.r, serviceTypes), "clusterIP", "172.30."+strconv.Itoa(c.r.IntN(256))+"."+strconv.Itoa(c.r.IntN(256)), "port", []string{pick(c.r, ports)})
	case "StatefulSet":
		r.set("current", 3, "desired", 3)
	case "DaemonSet":
		r.set("available", 14, "current", 14, "desired", 14, "ready", 14, "updated", 14)
	case "PersistentVolumeClaim":
		r.set("status", "Bound", "volumeName", "pvc-"+c.suffix(12), "storageClassName", "gp3-csi", "capacity", "20Gi",
			"accessMode", []string{"ReadWriteOnce"}, "request", "20Gi", "requestedStorage", 21474836480, "volumeMode", "Filesystem")
	case "PersistentVolume":
		r.set("status", "Bound", "type", "CSI", "capacity", "20Gi", "accessMode", []string{"ReadWriteOnce"}, "reclaimPolicy", "Delete", "claimRef", "data/"+app)
	case "Event":
		reason, severity := pick(c.r, reasons), "Normal"
		if c.r.IntN(5) == 4 {
			severity = "Warning"
		}
		r.set("reason", reason, "type", severity, "message", pick(c.r, reasons)+" "+app+"-"+c.suffix(5), "count", 1+c.r.IntN(89))
	case "Job":
		r.set("successful", 1, "completions", 1, "parallelism", 1)
	case "CronJob":
		r.set("active", 0, "schedule", "*/15 * * * *", "lastSchedule", c.timestamp(), "suspend", "false")
	}
}
