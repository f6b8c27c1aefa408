package membership

import (
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

func arn(t *testing.T, name string) irsa.ARN {
	t.Helper()
	parsed, err := irsa.ParseARN("arn:aws:eks:us-west-2:123456789012:cluster/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestDriverIsChosen(t *testing.T) {
	china := arn(t, "managed")
	china.Partition = "aws-cn"
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"csr":            {Config{Driver: registerv1alpha1.DriverCSR}, "csr"},
		"aws-irsa":       {Config{Driver: registerv1alpha1.DriverAWSIRSA, HubCluster: arn(t, "hub"), ManagedCluster: arn(t, "managed")}, "irsa"},
		"unknown":        {Config{Driver: "grpc"}, ""},
		"no ARN":         {Config{Driver: registerv1alpha1.DriverAWSIRSA}, ""},
		"two partitions": {Config{Driver: registerv1alpha1.DriverAWSIRSA, HubCluster: arn(t, "hub"), ManagedCluster: china}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newDriver(&test.config, nil)
			var kind string
			switch got := got.(type) {
			case *csrDriver:
				kind = "csr"
			case *irsaDriver:
				if got != nil {
					kind = "irsa"
				}
			}
			if name == "no ARN" && (err == nil || !strings.Contains(err.Error(), "--hub-cluster-arn and --managed-cluster-arn")) {
				t.Errorf("error of newDriver() = %v, want the names of the flags", err)
			}
			if kind != test.want || (err != nil) != (test.want == "") {
				t.Errorf("newDriver() = %T, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestIRSAUser checks that a kubeconfig is usable if its token command names the role of this
// cluster.
func TestIRSAUser(t *testing.T) {
	hub, managed := arn(t, "hub"), arn(t, "managed")
	d, err := newIRSADriver(&Config{ClusterName: "cluster1", HubCluster: hub, ManagedCluster: managed})
	if err != nil {
		t.Fatal(err)
	}
	user := d.user()
	want := "aws-token --region us-west-2 --cluster-name hub --role " + d.identity.HubRoleARN()
	if got := strings.Join(user.Exec.Args, " "); got != want {
		t.Errorf("user() has arguments %q, want %q", got, want)
	}
	identityFor := func(user *clientcmdapi.AuthInfo) *identity {
		kubeconfig, err := (&endpoint{server: "https://hub"}).kubeconfig(user)
		if err != nil {
			t.Fatal(err)
		}
		return &identity{data: map[string][]byte{keyKubeconfig: kubeconfig}}
	}
	other := user.DeepCopy()
	other.Exec.Args[len(other.Exec.Args)-1] = "arn:aws:iam::123456789012:role/other"
	for name, test := range map[string]struct {
		known *identity
		want  bool
	}{
		"own role":      {identityFor(user), true},
		"another role":  {identityFor(other), false},
		"certificate":   {identityFor(&clientcmdapi.AuthInfo{ClientCertificate: keyCertificate}), false},
		"no kubeconfig": {&identity{}, false},
		"malformed":     {&identity{data: map[string][]byte{keyKubeconfig: []byte("{")}}, false},
	} {
		if err := d.usable(test.known); (err == nil) != test.want {
			t.Errorf("usable(%s) = %v, want usable = %t", name, err, test.want)
		}
	}
}
