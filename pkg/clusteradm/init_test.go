package clusteradm

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
)

func TestInitRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"unknown driver":                    {[]string{"--registration-auth=password"}, []string{"--registration-auth must be csr or aws-irsa", `"password"`}},
		"no ARN":                            {[]string{"--registration-auth=aws-irsa"}, []string{"--hub-cluster-arn is required"}},
		"bad ARN":                           {[]string{"--registration-drivers=csr,awsirsa", "--hub-cluster-arn=arn:aws:eks:x"}, []string{"--hub-cluster-arn: "}},
		"ARN without aws-irsa":              {[]string{"--hub-cluster-arn=" + hubARN}, []string{"requires --registration-auth=aws-irsa"}},
		"long name of a hub":                {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("h", 40)}, []string{"--hub-role-arn is required", "64"}},
		"bad pattern":                       {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--auto-approved-arn-patterns=("}, []string{"--auto-approved-arn-patterns"}},
		"patterns without ARNs":             {[]string{"--auto-approved-arn-patterns=.*"}, []string{"requires --registration-auth=aws-irsa"}},
		"a list of patterns":                {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--auto-approved-arn-patterns=arn:aws:eks:a:1:.*,arn:aws:eks:b:1:.*"}, []string{"--auto-approved-arn-patterns", "once for each pattern"}},
		"a list of users":                   {[]string{"--auto-approved-csr-identities=alice,bob"}, []string{"--auto-approved-csr-identities", "once for each user"}},
		"a role of another account":         {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--hub-role-arn=arn:aws:iam::444455556666:role/hub"}, []string{"--hub-role-arn", "in the account of the hub"}},
		"a role of another partition":       {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--hub-role-arn=arn:aws-cn:iam::123456789012:role/hub"}, []string{"--hub-role-arn", "in the account of the hub"}},
		"a session":                         {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--hub-role-arn=arn:aws:sts::123456789012:assumed-role/hub/session"}, []string{"--hub-role-arn", "arn:aws:sts:", "is not the ARN of an IAM role"}},
		"an instance profile":               {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--hub-role-arn=arn:aws:iam::123456789012:instance-profile/hub"}, []string{"--hub-role-arn", "role/<name>"}},
		"users without csr":                 {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--auto-approved-csr-identities=u"}, []string{"requires --registration-auth=csr"}},
		"short token":                       {[]string{"--token-duration=1m"}, []string{"--token-duration must be at least 10m"}},
		"hub over HTTP":                     {[]string{"--hub-apiserver=http://hub.example.com"}, []string{"--hub-apiserver", "https://"}},
		"embedded search with two replicas": {[]string{"--etcd-servers=https://etcd:2379", "--search-engine=embedded"}, []string{"--search-engine=embedded supports only one replica"}},
		"the agent without csr":             {[]string{"--local-cluster", "--local-cluster-image=a", "--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN}, []string{"--local-cluster requires --registration-auth=csr"}},
		"the agent of an unknown release":   {[]string{"--local-cluster"}, []string{"--local-cluster requires --local-cluster-image"}},
		"the agent of an external server":   {[]string{"--local-cluster", "--apiserver=external"}, []string{"--local-cluster excludes --apiserver=external"}},
		"a standby hub":                     {[]string{"--standby"}, []string{"--standby excludes"}},
		"unknown --apiserver":               {[]string{"--apiserver=cloud"}, []string{"--apiserver must be deploy or external"}},
	} {
		t.Run(name, func(t *testing.T) {
			runCommand(t, append([]string{"init", "--output-manifests", "--image=registry.example.com/hub:v1"}, test.args...)...).refused(t, test.want...)
		})
	}
}

func TestInitPrintsManifests(t *testing.T) {
	got := runCommand(t, "init", "--output-manifests", "--image=registry.example.com/hub:v1", "--registration-auth=csr,awsirsa", "--hub-cluster-arn="+hubARN,
		"--eks-auth=ConfigMap", "--irsa-manage-roles=false", "--aws-resource-tags=team=a", "--auto-approved-arn-patterns=arn:aws:eks:[a-z0-9-]{1,20}:1:cluster/x",
		"--etcd-servers=https://a:2379,https://b:2379", "--search-engine=none").done(t)
	objects := decodeManifests(t, got.out)
	found := map[string]bool{}
	for _, object := range objects {
		found[manifests.Display(object)] = true
		switch manifests.Display(object) {
		case "deployment.apps/hub-apiserver in " + manifests.HubNamespace:
			deployment := deploymentIn(t, objects, manifests.ServerName)
			args := deployment.Spec.Template.Spec.Containers[0].Args
			for _, arg := range []string{
				"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + hubARN, "--eks-auth=ConfigMap", "--irsa-manage-roles=false",
				"--aws-resource-tags=team=a", "--feature-gates=ManagedClusterAutoApproval=true", "--search-engine=none",
				"--etcd-servers=https://a:2379,https://b:2379", "--auto-approved-arn-patterns=arn:aws:eks:[a-z0-9-]{1,20}:1:cluster/x",
			} {
				if !slices.Contains(args, arg) {
					t.Errorf("arguments of the server = %q, want %s", args, arg)
				}
			}
			if *deployment.Spec.Replicas != 2 {
				t.Errorf("replicas of the server = %d, want 2", *deployment.Spec.Replicas)
			}
		case "serviceaccount/hub-apiserver in " + manifests.HubNamespace:
			if role := object.GetAnnotations()[program.RoleARNAnnotation]; role != "arn:aws:iam::123456789012:role/hub-cluster1_managed-cluster-identity-creator" {
				t.Errorf("role annotation of the server = %q, want the identity creator of hub-cluster1", role)
			}
		}
	}
	for _, name := range []string{
		"role.rbac.authorization.k8s.io/open-cluster-management:hub-apiserver:aws-auth in kube-system",
		"clusterrole.rbac.authorization.k8s.io/open-cluster-management:managedcluster:registration",
		"clusterrole.rbac.authorization.k8s.io/open-cluster-management:bootstrap",
		"serviceaccount/agent-registration-bootstrap in open-cluster-management",
	} {
		if !found[name] {
			t.Errorf("printed manifests = %v, want them to contain %s", found, name)
		}
	}
	if found["secret/hub-apiserver-serving in "+manifests.HubNamespace] {
		t.Error("printed manifests contain the Secret of the serving certificate, want none: the server creates it")
	}
	if found["apiservice.apiregistration.k8s.io/v1alpha1.search.open-cluster-management.io"] {
		t.Error("printed manifests contain the APIService of search, want none with --search-engine=none")
	}
}

// Each value of init is one value of the server, whatever it contains.
func TestInitDoesNotSplitValues(t *testing.T) {
	values := []string{
		"--auto-approved-arn-patterns=arn:aws:eks:us-east-1:[0-9]{11,12}:cluster/team-.*", "--auto-approved-arn-patterns=arn:aws:eks:(us|eu)-west-1:.*",
		"--auto-approved-csr-identities=CN=ops,OU=teams,DC=example,DC=com", "--auto-approved-csr-identities=system:serviceaccount:ops:agent",
	}
	args := []string{"init", "--output-manifests", "--image=registry.example.com/hub:v1", "--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + hubARN, "--auto-approved-csr-identities="}
	objects := decodeManifests(t, runCommand(t, append(args, values...)...).done(t).out)
	for _, object := range objects {
		if object.GetKind() != manifests.KindDeployment {
			continue
		}
		deployment := deploymentIn(t, objects, manifests.ServerName)
		rendered := slices.DeleteFunc(deployment.Spec.Template.Spec.Containers[0].Args, func(arg string) bool { return !strings.HasPrefix(arg, "--auto-approved-") })
		if !slices.Equal(rendered, values) {
			t.Errorf("arguments of the server = %q, want %q", rendered, values)
		}
	}
}

// A hub with one source of the certificate must not be configured for the other.
func TestInitServingCertificates(t *testing.T) {
	for source, want := range map[string]struct {
		args, volumes []string
		annotation    string
	}{
		"self-signed":  {[]string{"--serving-certificate-secret=" + manifests.ServingSecret}, nil, "open-cluster-management.io/inject-ca-from-secret"},
		"cert-manager": {[]string{"--tls-cert-file=/certs/tls.crt", "--tls-private-key-file=/certs/tls.key"}, []string{manifests.ServingSecret}, "cert-manager.io/inject-ca-from"},
	} {
		t.Run(source, func(t *testing.T) {
			objects := decodeManifests(t, runCommand(t, "init", "--output-manifests", "--image=registry.example.com/hub:v1", "--proxy-accounts", "--serving-certificates="+source).done(t).out)
			if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GetName() == "v1alpha1.proxy.open-cluster-management.io"
			}) {
				t.Error("init --proxy-accounts prints no APIService for proxy.open-cluster-management.io/v1alpha1")
			}
			for _, object := range objects {
				switch object.GetKind() {
				case cli.KindAPIService:
					if annotations := object.GetAnnotations(); len(annotations) != 1 || annotations[want.annotation] == "" {
						t.Errorf("annotations of %s = %v, want only %s", manifests.Display(object), annotations, want.annotation)
					}
				case manifests.KindDeployment:
					deployment := deploymentIn(t, objects, manifests.ServerName)
					if wanted := "--runtime-config=proxy.open-cluster-management.io/v1alpha1=true"; !slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, wanted) {
						t.Errorf("arguments with --proxy-accounts lack %s", wanted)
					}
					var args, volumes []string
					for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
						if strings.HasPrefix(arg, "--tls-") || strings.HasPrefix(arg, "--serving-") {
							args = append(args, arg)
						}
					}
					for _, volume := range deployment.Spec.Template.Spec.Volumes {
						if volume.Secret != nil {
							volumes = append(volumes, volume.Secret.SecretName)
						}
					}
					if !slices.Equal(args, want.args) || !slices.Equal(volumes, want.volumes) {
						t.Errorf("arguments for the certificate = %q and mounted Secrets = %q, want %q and %q", args, volumes, want.args, want.volumes)
					}
				}
			}
		})
	}
}

// TestInitLocalCluster checks that the agent of the hub registers with an identity that the server accepts.
func TestInitLocalCluster(t *testing.T) {
	const localCluster, localAgent = "local-cluster", "system:serviceaccount:open-cluster-management-agent:agent"
	objects := decodeManifests(t, runCommand(t, "init", "--output-manifests", "--local-cluster", "--image=registry.example.com/hub-apiserver:v1",
		"--auto-approved-csr-identities="+localAgent, "--auto-approved-csr-identities=alice").done(t).out)
	agent := deploymentIn(t, objects, manifests.AgentName)
	if user := "system:serviceaccount:" + agent.Namespace + ":" + agent.Spec.Template.Spec.ServiceAccountName; user != localAgent {
		t.Errorf("user of the agent = %s, want %s", user, localAgent)
	}
	container := agent.Spec.Template.Spec.Containers[0]
	if container.Image != "registry.example.com/hub-apiserver-agent:v1" || !slices.Contains(container.Args, "--cluster-name="+localCluster) {
		t.Errorf("the agent has the image %s and the arguments %q, want the release of the server and --cluster-name=%s", container.Image, container.Args, localCluster)
	}
	server := deploymentIn(t, objects, manifests.ServerName)
	approval := slices.DeleteFunc(server.Spec.Template.Spec.Containers[0].Args, func(arg string) bool {
		return !strings.HasPrefix(arg, "--auto-approved-") && !strings.HasPrefix(arg, "--feature-gates=")
	})
	want := []string{"--feature-gates=ManagedClusterAutoApproval=true", "--auto-approved-csr-identities=" + localAgent, "--auto-approved-csr-identities=alice"}
	if !slices.Equal(approval, want) {
		t.Errorf("arguments of the server = %q, want %q", approval, want)
	}
}
