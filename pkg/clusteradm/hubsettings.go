package clusteradm

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	hubNamespace  = "open-cluster-management-hub"
	serverName    = "hub-apiserver"
	servingSecret = "hub-apiserver-serving"

	// injectAnnotation is the annotation of APIServices into which the server writes its
	// certificate authorities.
	injectAnnotation = "open-cluster-management.io/inject-ca-from-secret"

	kindAPIService     = "APIService"
	kindDeployment     = "Deployment"
	kindServiceAccount = "ServiceAccount"

	// roleARNAnnotation is the annotation with which EKS maps a ServiceAccount to an IAM
	// role.
	roleARNAnnotation = "eks.amazonaws.com/role-arn"

	searchEmbedded = "embedded"
	searchPostgres = "postgres"
	searchNone     = "none"

	dataVolume = "data"
	dataDir    = "/var/lib/hub-apiserver"
	// serverGroup is the group of the files in the volume of the server. It equals
	// runAsUser in the manifests.
	serverGroup = 65532
)

// hubSettings are the settings of a hub.
type hubSettings struct {
	drivers     []registerv1alpha1.RegistrationDriver
	arn         *irsa.ARN
	roleARN     string
	eksAuth     string
	manageRoles bool
	tags        map[string]string
	arnPatterns []string
	identities  []string

	image       imageSettings
	serving     string
	etcdServers []string
	search      string
	storageSize string
}

func newHubSettings() hubSettings {
	return hubSettings{eksAuth: string(irsa.AccessEntry), manageRoles: true, serving: servingSelfSigned, storageSize: "10Gi"}
}

func (h *hubSettings) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&h.roleARN, "hub-role-arn", "", "ARN of the IAM role of the server, for aws-irsa. Defaults to <hub>_managed-cluster-identity-creator in the account of the hub.")
	flags.StringVar(&h.eksAuth, "eks-auth", h.eksAuth, "How the hub's EKS cluster maps IAM roles to groups: AccessEntry, or ConfigMap for kube-system/aws-auth.")
	flags.BoolVar(&h.manageRoles, "irsa-manage-roles", h.manageRoles, "Whether the server creates the IAM role of each cluster in the account of the hub. If false, create the roles yourself.")
	flags.StringToStringVar(&h.tags, "aws-resource-tags", nil, "Additional tags (key=value) of the resources that the server creates in AWS.")
	flags.StringSliceVar(&h.arnPatterns, "auto-approved-arn-patterns", nil, "Regular expressions. A cluster is accepted automatically if one of them matches its whole claimed ARN.")
	flags.StringSliceVar(&h.identities, "auto-approved-csr-identities", nil, "Users whose clusters are accepted automatically.")
	h.image.addFlags(flags, "server")
	flags.StringVar(&h.serving, "serving-certificates", h.serving, "Source of the server's certificate: self-signed (the server creates and renews it) or cert-manager (which must be installed on the hub).")
	flags.StringSliceVar(&h.etcdServers, "etcd-servers", nil, "URLs of an etcd cluster, for two replicas of the server. The Secret hub-apiserver-etcd contains its certificates. If empty, one replica stores its data in a persistent volume.")
	flags.StringVar(&h.search, "search-engine", "", "Search engine: embedded, postgres (the Secret hub-apiserver-postgres contains its URL) or none. Defaults to embedded, or to postgres with --etcd-servers.")
	flags.StringVar(&h.storageSize, "storage-size", h.storageSize, "Size of the persistent volume.")
}

func (h *hubSettings) aws() bool { return slices.Contains(h.drivers, registerv1alpha1.DriverAWSIRSA) }

// complete sets the defaults, and returns the errors of the settings.
func (h *hubSettings) complete() []error {
	var errs []error
	if h.serving != servingSelfSigned && h.serving != servingCertManager {
		errs = append(errs, fmt.Errorf("--serving-certificates must be %s or %s, not %q", servingSelfSigned, servingCertManager, h.serving))
	}
	if h.search == "" {
		h.search = searchEmbedded
		if len(h.etcdServers) > 0 {
			h.search = searchPostgres
		}
	}
	if !slices.Contains([]string{searchEmbedded, searchPostgres, searchNone}, h.search) {
		errs = append(errs, fmt.Errorf("--search-engine must be %s, %s or %s, not %q", searchEmbedded, searchPostgres, searchNone, h.search))
	}
	if h.search == searchEmbedded && len(h.etcdServers) > 0 {
		errs = append(errs, fmt.Errorf("--search-engine=%s supports only one replica and cannot be used with --etcd-servers", searchEmbedded))
	}
	if _, err := resource.ParseQuantity(h.storageSize); err != nil {
		errs = append(errs, fmt.Errorf("--storage-size %q: %w", h.storageSize, err))
	}
	for _, pattern := range h.arnPatterns {
		if _, err := regexp.Compile(pattern); err != nil {
			errs = append(errs, fmt.Errorf("--auto-approved-arn-patterns: %w", err))
		}
	}
	if len(h.arnPatterns) > 0 && !h.aws() {
		errs = append(errs, fmt.Errorf("--auto-approved-arn-patterns requires --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
	}
	if len(h.identities) > 0 && !slices.Contains(h.drivers, registerv1alpha1.DriverCSR) {
		errs = append(errs, fmt.Errorf("--auto-approved-csr-identities requires --registration-auth=%s", registerv1alpha1.DriverCSR))
	}
	return append(errs, h.completeAWS()...)
}

func (h *hubSettings) completeAWS() []error {
	var errs []error
	if mapping := irsa.Mapping(h.eksAuth); mapping != irsa.AccessEntry && mapping != irsa.ConfigMap {
		errs = append(errs, fmt.Errorf("--eks-auth must be %s or %s, not %q", irsa.AccessEntry, irsa.ConfigMap, h.eksAuth))
	}
	if !h.aws() {
		if h.roleARN != "" {
			errs = append(errs, fmt.Errorf("--hub-role-arn requires --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
		}
		return errs
	}
	if err := irsa.ValidateResourceTags(h.tags); err != nil {
		errs = append(errs, fmt.Errorf("--aws-resource-tags: %w", err))
	}
	if h.roleARN == "" && h.arn.ClusterName != "" {
		name, err := irsa.CreatorRoleName(*h.arn)
		if err != nil {
			return append(errs, fmt.Errorf("--hub-role-arn is required: %w", err))
		}
		h.roleARN = h.arn.RoleARN(name)
	}
	if !strings.HasPrefix(h.roleARN, "arn:") || !strings.Contains(h.roleARN, ":role/") {
		errs = append(errs, errors.New("--hub-role-arn must be the ARN of an IAM role, such as arn:aws:iam::123456789012:role/name"))
	}
	return errs
}

// arguments returns the arguments of the server that configure registration.
func (h *hubSettings) arguments() []string {
	names := make([]string, 0, len(h.drivers))
	for _, driver := range h.drivers {
		names = append(names, string(driver))
	}
	args := []string{"--registration-auth=" + strings.Join(names, ",")}
	if h.aws() {
		args = append(args, "--hub-cluster-arn="+h.arn.String(), "--eks-auth="+h.eksAuth)
		if !h.manageRoles {
			args = append(args, "--irsa-manage-roles=false")
		}
		for _, key := range slices.Sorted(maps.Keys(h.tags)) {
			args = append(args, "--aws-resource-tags="+oneValue(key+"="+h.tags[key]))
		}
	}
	if len(h.arnPatterns)+len(h.identities) > 0 {
		args = append(args, "--feature-gates=ManagedClusterAutoApproval=true")
	}
	for _, pattern := range h.arnPatterns {
		args = append(args, "--auto-approved-arn-patterns="+oneValue(pattern))
	}
	for _, identity := range h.identities {
		args = append(args, "--auto-approved-csr-identities="+oneValue(identity))
	}
	return args
}

// oneValue quotes a value for a flag that splits its argument at commas.
func oneValue(value string) string {
	if !strings.ContainsAny(value, ",\"\n") {
		return value
	}
	return `"` + strings.ReplaceAll(value, `"`, `""`) + `"`
}

// access returns the RBAC objects of the server, the agents and the administrators.
func (h *hubSettings) access() ([]*unstructured.Unstructured, error) {
	patterns := []string{"rbac/namespace.yaml", "rbac/*.yaml", "agent/hub/*.yaml"}
	if h.aws() && irsa.Mapping(h.eksAuth) == irsa.ConfigMap {
		patterns = append(patterns, "rbac/aws-auth/*.yaml")
	}
	objects, err := manifests(patterns...)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if h.aws() && object.GetKind() == kindServiceAccount && object.GetName() == serverName {
			annotate(object, roleARNAnnotation, h.roleARN)
		}
	}
	return objects, nil
}

func annotate(object *unstructured.Unstructured, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
}

// server returns the objects that run and expose the server.
func (h *hubSettings) server() ([]*unstructured.Unstructured, error) {
	patterns := []string{"deploy/base/*.yaml", "apiservice/*.yaml"}
	if h.serving == servingCertManager {
		patterns = append([]string{"deploy/cert-manager/*.yaml"}, patterns...)
	}
	objects, err := manifests(patterns...)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		if h.search != searchNone || object.GetKind() != kindAPIService {
			return false
		}
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		return group == "search.open-cluster-management.io" || group == "proxy.open-cluster-management.io"
	})
	var out []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case kindAPIService:
			if h.serving == servingCertManager {
				unstructured.RemoveNestedField(object.Object, "metadata", "annotations", injectAnnotation)
				annotate(object, "cert-manager.io/inject-ca-from", hubNamespace+"/"+serverName)
			}
		case kindDeployment:
			made, err := h.deployment(object)
			if err != nil {
				return nil, err
			}
			out = append(out, made...)
			continue
		}
		out = append(out, object)
	}
	return out, nil
}

// deployment returns the Deployment of the server with these settings, and the claim of
// its volume if it has one.
func (h *hubSettings) deployment(manifest *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	deployment := &appsv1.Deployment{}
	if err := fromUnstructured(manifest, deployment); err != nil {
		return nil, err
	}
	pod := &deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		return nil, fmt.Errorf("%s must have one container", display(manifest))
	}
	container := &pod.Containers[0]
	container.Image = h.image.of(container.Image)
	if h.serving == servingCertManager {
		mountCertificate(pod)
	}
	if h.search != searchPostgres {
		container.Args = withoutFlag(container.Args, "search-postgres-url-file")
		dropVolume(pod, "postgres")
	}
	container.Args = append(withoutFlag(container.Args, "search-engine"), "--search-engine="+h.search)
	container.Args = withoutFlag(container.Args, "etcd-servers")
	var out []*unstructured.Unstructured
	if len(h.etcdServers) > 0 {
		container.Args = append(container.Args, "--etcd-servers="+strings.Join(h.etcdServers, ","))
	} else {
		for _, flag := range []string{"etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
			container.Args = withoutFlag(container.Args, flag)
		}
		dropVolume(pod, "etcd-certs")
		claim, err := toUnstructured(h.keepData(deployment))
		if err != nil {
			return nil, err
		}
		out = append(out, claim)
	}
	container.Args = append(container.Args, h.arguments()...)
	object, err := toUnstructured(deployment)
	if err != nil {
		return nil, err
	}
	return append(out, object), nil
}

// keepData configures one replica with a volume, and returns its claim. A second replica
// could not start while the first runs, so the strategy is Recreate.
func (h *hubSettings) keepData(deployment *appsv1.Deployment) *corev1.PersistentVolumeClaim {
	deployment.Spec.Replicas = ptr.To[int32](1)
	deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	pod := &deployment.Spec.Template.Spec
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	pod.SecurityContext.FSGroup = ptr.To[int64](serverGroup)
	// The ownership of the files must change only once. Later changes would open the
	// directory of etcd, which etcd restricts to its own user.
	pod.SecurityContext.FSGroupChangePolicy = ptr.To(corev1.FSGroupChangeOnRootMismatch)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: dataVolume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: serverName},
	}})
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: dataVolume, MountPath: dataDir})
	container.Args = append(container.Args, "--data-dir="+dataDir+"/data")
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: serverName},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(h.storageSize)}},
		},
	}
}

// mountCertificate makes the server use the certificate that cert-manager writes into the Secret.
func mountCertificate(pod *corev1.PodSpec) {
	const name, path = "certs", "/certs"
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: servingSecret}}})
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	container.Args = append(withoutFlag(container.Args, "serving-certificate-secret"),
		"--tls-cert-file="+path+"/"+corev1.TLSCertKey, "--tls-private-key-file="+path+"/"+corev1.TLSPrivateKeyKey)
}

// withoutFlag removes a flag in the form --name=value from a command line.
func withoutFlag(args []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=")
	})
}

func dropVolume(pod *corev1.PodSpec, name string) {
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(volume corev1.Volume) bool { return volume.Name == name })
	for i := range pod.Containers {
		mounts := &pod.Containers[i].VolumeMounts
		*mounts = slices.DeleteFunc(*mounts, func(mount corev1.VolumeMount) bool { return mount.Name == name })
	}
}
