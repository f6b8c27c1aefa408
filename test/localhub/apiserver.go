package localhub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"open-cluster-management.io/hub-apiserver/test/await"
)

const (
	// HubNamespace is the namespace of our apiserver on the hub.
	HubNamespace = "open-cluster-management-hub"
	// ServerName is the name of our apiserver's Service and ServiceAccount in HubNamespace.
	ServerName = "hub-apiserver"
	// registeredAnnotation is the time of the last registration of the APIServices, on the Service.
	registeredAnnotation = "localhub/registered"
)

// APIServerOptions are the options of an [APIServer]. Hub and Dir are required.
type APIServerOptions struct {
	// Hub is the cluster whose aggregation layer forwards requests to the server.
	Hub *Cluster
	// Name is used in errors and as the log's name; "apiserver" if empty.
	Name string
	// Dir contains the certificates, the kubeconfig and the embedded etcd's data.
	Dir string
	// PKIDir contains the authority of the serving certificate; <Dir>/pki if empty.
	// Replicas behind one Service share an authority.
	PKIDir string
	// LogDir receives the log; <Dir>/logs if empty.
	LogDir string
	// BinDir contains the program apiserver; [BinDir]() if empty.
	BinDir string
	// EtcdServers are the endpoints of an external etcd. If empty, the server embeds an etcd.
	EtcdServers []string
	// Granted is set if the caller, or clusteradm init, grants the server its permissions.
	// Otherwise Start grants them.
	Granted bool
	// AuditPolicy is the server's audit policy, in YAML. The server logs to
	// [APIServer.AuditLog]. Without a policy, it has no audit log.
	AuditPolicy string
	// Args are additional arguments, which take precedence over the defaults.
	Args []string
	// Host is the host of the server. Nil means this machine.
	Host *Host
	// Port is the port of the server. If it is zero, NewAPIServer chooses one.
	Port int
}

// APIServer is our apiserver in front of a hub.
type APIServer struct {
	*Process
	// Port is the server's port on its host.
	Port int

	hub       *Cluster
	authority *authority
	// kubeconfig is the path of the server's credentials on the hub.
	kubeconfig string
	dir        string
	granted    bool
}

// NewAPIServer returns an apiserver without starting it, and creates its certificates.
func NewAPIServer(opts APIServerOptions) (*APIServer, error) {
	opts.Name = cmp.Or(opts.Name, "apiserver")
	opts.PKIDir = cmp.Or(opts.PKIDir, filepath.Join(opts.Dir, "pki"))
	opts.LogDir = cmp.Or(opts.LogDir, filepath.Join(opts.Dir, "logs"))
	opts.BinDir = cmp.Or(opts.BinDir, BinDir())
	path, err := Binary(opts.BinDir, "apiserver")
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{dir, opts.PKIDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	s := &APIServer{hub: opts.Hub, kubeconfig: filepath.Join(dir, "hub.kubeconfig"), dir: dir, granted: opts.Granted}
	// If the port changed, the hub would use the previous one for a moment.
	if s.Port = opts.Port; s.Port == 0 {
		if s.Port, err = rememberedPort(filepath.Join(dir, "port")); err != nil {
			return nil, err
		}
	}
	if s.authority, err = loadAuthority(opts.PKIDir, "apiserver-ca"); err != nil {
		return nil, err
	}
	certFile, keyFile, err := s.issueServing(time.Time{}, opts.Host)
	if err != nil {
		return nil, err
	}
	s.Process = &Process{Host: opts.Host}
	probe, err := s.probe()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bind-address=" + opts.Host.address(),
		"--secure-port=" + strconv.Itoa(s.Port),
		"--tls-cert-file=" + certFile,
		"--tls-private-key-file=" + keyFile,
		"--kubeconfig=" + s.kubeconfig,
		"--authentication-kubeconfig=" + s.kubeconfig,
		"--authorization-kubeconfig=" + s.kubeconfig,
	}
	if len(opts.EtcdServers) > 0 {
		for _, endpoint := range opts.EtcdServers {
			args = append(args, "--etcd-servers="+endpoint)
		}
	} else {
		args = append(args, "--data-dir="+filepath.Join(dir, "etcd"))
	}
	audit, err := auditArgs(dir, opts.AuditPolicy)
	if err != nil {
		return nil, err
	}
	s.Process = &Process{
		Name:    opts.Name,
		Path:    path,
		Args:    slices.Concat(args, audit, opts.Args),
		LogFile: filepath.Join(opts.LogDir, opts.Name+".log"),
		Ready:   probe,
		Host:    opts.Host,
	}
	return s, nil
}

// issueServing writes a serving certificate for a host. It expires at a time, or after leafLifetime if it is zero.
func (s *APIServer) issueServing(expires time.Time, host *Host) (certFile, keyFile string, err error) {
	const service = ServerName + "." + HubNamespace
	return s.authority.issueServingUntil(expires, s.dir, host.address(), service+".svc", service, "localhost")
}

// probe returns the readiness check, which needs no credentials.
func (s *APIServer) probe() (func(context.Context) error, error) {
	config, err := s.config(&rest.Config{})
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return readyz(client.RESTClient()), nil
}

// Start grants the server's ServiceAccount only the permissions in artifacts/rbac,
// writes its kubeconfig, and starts the server as [Process.Start] does. The hub must
// be running. On a hub on EKS, the server uses the IAM role that its ServiceAccount
// names.
func (s *APIServer) Start(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	return s.Process.Start(ctx)
}

func (s *APIServer) prepare(ctx context.Context) error {
	config, err := s.hub.ServiceAccountConfig(ctx, HubNamespace, ServerName)
	if err != nil {
		return err
	}
	if !s.granted {
		grants, err := ReadManifests(filepath.Join(Root(), "artifacts", "rbac"))
		if err != nil {
			return err
		}
		if err := s.hub.Apply(ctx, grants...); err != nil {
			return err
		}
	}
	if err := writeKubeconfig(s.kubeconfig, s.hub.Name, ServerName, config); err != nil {
		return err
	}
	identity, err := s.hub.PodIdentity(ctx, HubNamespace, ServerName, filepath.Join(s.dir, "aws-token"))
	if len(identity) > 0 {
		s.Env = identity
	}
	return err
}

// UserConfig returns a client configuration of a hub user that sends requests to the
// server directly, without the hub's aggregation layer.
func (s *APIServer) UserConfig(user string, groups ...string) (*rest.Config, error) {
	config, err := s.hub.UserConfig(user, groups...)
	if err != nil {
		return nil, err
	}
	return s.config(config)
}

// ServiceAccountConfig returns a client configuration of a ServiceAccount of the
// hub that sends requests to the server directly. See Cluster.ServiceAccountConfig.
func (s *APIServer) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	config, err := s.hub.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return s.config(config)
}

// AnonymousConfig returns a client configuration without credentials that
// sends requests to the server directly.
func (s *APIServer) AnonymousConfig() (*rest.Config, error) {
	return s.config(&rest.Config{})
}

// config sets the address and the authority of a client configuration to those of the server.
func (s *APIServer) config(config *rest.Config) (*rest.Config, error) {
	bundle, err := s.CABundle()
	if err != nil {
		return nil, err
	}
	config.Host = "https://" + s.Process.Host.address() + ":" + strconv.Itoa(s.Port)
	config.CAData = bundle
	config.QPS = -1
	return s.Process.Host.reach(config), nil
}

// CABundle returns the authority of the server's serving certificate in PEM.
func (s *APIServer) CABundle() ([]byte, error) {
	return s.authority.bundle()
}

// Register registers the APIServices of artifacts/apiservice for this server
// and waits until the hub serves them. See [Cluster.RegisterAPIServices].
func (s *APIServer) Register(ctx context.Context, groups ...string) error {
	bundle, err := s.CABundle()
	if err != nil {
		return err
	}
	return s.hub.RegisterAPIServices(ctx, s.Port, bundle, groups...)
}

// RegisterReplicas registers the APIServices of artifacts/apiservice for all Pods with the label app=hub-apiserver
// that are ready, and waits until the hub serves them.
func (s *APIServer) RegisterReplicas(ctx context.Context) error {
	bundle, err := s.CABundle()
	if err != nil {
		return err
	}
	return s.hub.registerAPIServices(ctx, corev1.ServiceSpec{
		Selector: map[string]string{"app": ServerName},
		Ports:    []corev1.ServicePort{{Name: "https", Port: int32(s.Port)}},
	}, s.Port, bundle)
}

// RegisterAPIServices applies the APIServices of artifacts/apiservice with the port
// and the CA bundle, and their Service, which points to the port on 127.0.0.1. It
// returns when all APIServices are Available and in discovery. At the deadline of
// ctx, or after two minutes, it returns an error with the reasons in the APIServices.
//
// The hub verifies the certificate with the Service's name and the bundle, as in
// production; insecure APIServices are rejected. If groups are given, only these are
// registered, for a hub that serves the other groups itself. They may be groups of
// artifacts/apiservice/optional, and single versions of groups.
func (c *Cluster) RegisterAPIServices(ctx context.Context, port int, caBundle []byte, groups ...string) error {
	return c.registerAPIServices(ctx, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: loopback}, port, caBundle, groups...)
}

func (c *Cluster) registerAPIServices(ctx context.Context, spec corev1.ServiceSpec, port int, caBundle []byte, groups ...string) error {
	manifests, err := ReadManifests(filepath.Join(Root(), "artifacts", "apiservice"))
	if err != nil {
		return err
	}
	if len(groups) > 0 {
		optional, err := ReadManifests(filepath.Join(Root(), "artifacts", "apiservice", "optional"))
		if err != nil {
			return err
		}
		manifests = append(manifests, optional...)
	}
	// The Service comes first. An APIService without its Service is unavailable, and
	// the hub checks it again only later. If the Service exists, its change makes the hub
	// check again at once, as new endpoints do in production.
	service := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: HubNamespace, Name: ServerName,
			Annotations: map[string]string{registeredAnnotation: time.Now().Format(time.RFC3339Nano)},
		},
		Spec: spec,
	}
	object, err := toUnstructured(service)
	if err != nil {
		return err
	}
	objects := []*unstructured.Unstructured{object}
	var names []string
	var versions []schema.GroupVersion
	for _, manifest := range manifests {
		if manifest.GetKind() != "APIService" {
			continue
		}
		registration := &apiregistrationv1.APIService{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, registration); err != nil {
			return fmt.Errorf("APIService %s: %w", manifest.GetName(), err)
		}
		spec := &registration.Spec
		if len(groups) > 0 && !slices.Contains(groups, spec.Group) && !slices.Contains(groups, spec.Group+"/"+spec.Version) {
			continue
		}
		if spec.InsecureSkipTLSVerify || spec.Service == nil || spec.Service.Namespace != HubNamespace || spec.Service.Name != ServerName {
			return fmt.Errorf("APIService %s: must verify certificates and name the Service %s/%s", registration.Name, HubNamespace, ServerName)
		}
		spec.CABundle, spec.Service.Port = caBundle, new(int32(port))
		object, err := toUnstructured(registration)
		if err != nil {
			return err
		}
		objects = append(objects, object)
		names = append(names, registration.Name)
		versions = append(versions, schema.GroupVersion{Group: spec.Group, Version: spec.Version})
	}
	if err := c.Apply(ctx, objects...); err != nil {
		return err
	}
	return c.waitForAPIServices(ctx, names, versions)
}

// waitForAPIServices waits until the APIServices are Available, the hub forwards
// requests, and its discovery contains all versions. Each of these can be out of date:
// after a crash of the hub, the stored conditions still report Available.
func (c *Cluster) waitForAPIServices(ctx context.Context, names []string, versions []schema.GroupVersion) error {
	client, err := aggregator.NewForConfig(c.AdminConfig())
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.AdminConfig())
	if err != nil {
		return err
	}
	check := func(ctx context.Context) error {
		list, err := client.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var errs []error
		for _, registration := range list.Items {
			if !slices.Contains(names, registration.Name) {
				continue
			}
			available := helper.GetAPIServiceConditionByType(&registration, apiregistrationv1.Available)
			if available == nil {
				errs = append(errs, fmt.Errorf("APIService %s: not checked yet", registration.Name))
			} else if available.Status != apiregistrationv1.ConditionTrue {
				errs = append(errs, fmt.Errorf("APIService %s: %s: %s", registration.Name, available.Reason, available.Message))
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		for _, version := range versions {
			if _, err := disco.ServerResourcesForGroupVersion(version.String()); err != nil {
				return fmt.Errorf("%s: %w", version, err)
			}
		}
		_, resources, stale, err := disco.GroupsAndMaybeResources()
		if err != nil {
			return err
		}
		for _, version := range versions {
			if err := stale[version]; err != nil {
				errs = append(errs, fmt.Errorf("discovery of %s: %w", version, err))
			} else if resources[version] == nil {
				errs = append(errs, fmt.Errorf("%s is not in discovery", version))
			}
		}
		return errors.Join(errs...)
	}
	if err := await.Poll(ctx, check); err != nil {
		return fmt.Errorf("APIServices on %s: %w", c.Name, err)
	}
	return nil
}

// toUnstructured converts a typed object, without its empty status, for Apply.
func toUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	result := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return result, nil
}
