package fleetgen

import "strings"

var (
	apps = strings.Fields(`payments orders catalog cart checkout search-ui inventory shipping invoices users auth
		gateway nginx-ingress nginx-proxy redis postgres kafka zookeeper grafana prometheus alertmanager loki tempo
		otel-collector jaeger cert-manager external-dns vault consul argocd-server argocd-repo keycloak minio rabbitmq
		mongo mysql etcd-backup billing fraud recommender notifications mailer scheduler worker reports analytics ingest
		transformer exporter metrics-adapter image-registry dns-default router apiserver controller-manager kube-proxy
		node-exporter csi-driver multus sdn`)
	systemNamespaces = strings.Fields(`default kube-system kube-public kube-node-lease openshift-monitoring
		openshift-ingress openshift-dns openshift-image-registry cert-manager open-cluster-management-agent`)
	appNamespaces = strings.Fields(`payments orders catalog cart checkout inventory shipping invoices users auth gateway
		ingress-nginx data messaging observability billing fraud recommender notifications reports analytics ingest
		platform ci sandbox`)

	teams        = numbered("team-", 2, 25)
	costCenters  = numbered("cc-", 4, 400)
	environments = []string{"prod", "staging", "dev", "qa"}
	regions      = []string{"us-east-1", "us-west-2", "eu-central-1", "eu-west-1", "ap-south-1"}
	machines     = []string{"m5.xlarge", "m5.2xlarge", "c5.4xlarge"}
	installers   = []string{"Helm", "argocd", "kustomize", "OLM"}
	components   = []string{"api", "web", "worker", "db", "cache", "v2"}
	reasons      = []string{"Scheduled", "Pulled", "Created", "Started", "BackOff", "FailedScheduling", "Unhealthy", "Killing"}
	serviceTypes = []string{"ClusterIP", "ClusterIP", "ClusterIP", "ClusterIP", "ClusterIP", "ClusterIP", "ClusterIP", "ClusterIP", "LoadBalancer", "NodePort"}
	ports        = []string{"80/TCP", "443/TCP", "8080/TCP", "8443/TCP", "9090/TCP", "5432/TCP"}
	replicas     = []int{1, 2, 2, 3, 3, 5, 8}
	processors   = []int{4, 8, 16}
)

// statuses are the statuses of Pods, with their numbers per thousand Pods.
var statuses = []struct {
	name     string
	perMille int
}{
	{"Running", 920},
	{"Completed", 40},
	{"CrashLoopBackOff", 15},
	{"ImagePullBackOff", 8},
	{"Pending", 7},
	{"Error", 6},
	{"Terminating", 4},
}

// kind is a kind of resources, with its number per thousand resources.
type kind struct {
	name, plural, group, version string
	namespaced                   bool
	perMille                     int
}

var kinds = []kind{
	{"Pod", "pods", "", "v1", true, 200},
	{"ReplicaSet", "replicasets", "apps", "v1", true, 96},
	{"Deployment", "deployments", "apps", "v1", true, 48},
	{"StatefulSet", "statefulsets", "apps", "v1", true, 5},
	{"DaemonSet", "daemonsets", "apps", "v1", true, 4},
	{"Service", "services", "", "v1", true, 50},
	{"EndpointSlice", "endpointslices", "discovery.k8s.io", "v1", true, 50},
	{"ConfigMap", "configmaps", "", "v1", true, 160},
	{"Secret", "secrets", "", "v1", true, 140},
	{"ServiceAccount", "serviceaccounts", "", "v1", true, 52},
	{"Role", "roles", "rbac.authorization.k8s.io", "v1", true, 24},
	{"RoleBinding", "rolebindings", "rbac.authorization.k8s.io", "v1", true, 32},
	{"ClusterRole", "clusterroles", "rbac.authorization.k8s.io", "v1", false, 18},
	{"ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", "v1", false, 14},
	{"PersistentVolumeClaim", "persistentvolumeclaims", "", "v1", true, 12},
	{"PersistentVolume", "persistentvolumes", "", "v1", false, 12},
	{"Event", "events", "", "v1", true, 30},
	{"Job", "jobs", "batch", "v1", true, 12},
	{"CronJob", "cronjobs", "batch", "v1", true, 3},
	{"CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", "v1", false, 16},
	{"Lease", "leases", "coordination.k8s.io", "v1", true, 8},
}

var (
	namespaceKind = kind{name: "Namespace", plural: "namespaces", version: "v1"}
	nodeKind      = kind{name: "Node", plural: "nodes", version: "v1"}
	kindsByName   = func() map[string]kind {
		m := map[string]kind{}
		for _, k := range kinds {
			m[k.name] = k
		}
		return m
	}()
)
