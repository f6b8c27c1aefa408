package agent

import (
	"encoding/json"
	"testing"
	"time"
)

func TestExecCredential(t *testing.T) {
	expires := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	encoded, err := execCredential("secret", expires)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		APIVersion, Kind string
		Status           struct{ Token, ExpirationTimestamp string }
	}
	if err := json.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	if got.APIVersion != "client.authentication.k8s.io/v1" || got.Kind != "ExecCredential" || got.Status.Token != "secret" || got.Status.ExpirationTimestamp != "2026-01-02T02:04:05Z" {
		t.Errorf("execCredential() = %s, want kind ExecCredential of client.authentication.k8s.io/v1 with token secret and expiry 2026-01-02T02:04:05Z", encoded)
	}
}

func TestRegistrationOptions(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want bool
	}{
		"bootstrap":      {[]string{"--bootstrap-kubeconfig=f"}, true},
		"hub kubeconfig": {[]string{"--hub-kubeconfig=f"}, true},
		"neither":        {nil, false},
		"both":           {[]string{"--bootstrap-kubeconfig=f", "--hub-kubeconfig=f"}, false},
		"unknown driver": {[]string{"--bootstrap-kubeconfig=f", "--registration-auth=grpc"}, false},
		"irsa":           {[]string{"--bootstrap-kubeconfig=f", "--registration-auth=aws-irsa", "--eks-hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/hub", "--managed-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/one"}, true},
		"irsa upstream":  {[]string{"--bootstrap-kubeconfig=f", "--registration-auth=awsirsa", "--hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/hub", "--managed-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/one"}, true},
		"irsa no hub":    {[]string{"--bootstrap-kubeconfig=f", "--registration-auth=aws-irsa", "--managed-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/one"}, false},
		"irsa bad ARN":   {[]string{"--bootstrap-kubeconfig=f", "--registration-auth=aws-irsa", "--hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/hub", "--managed-cluster-arn=one"}, false},
		"short":          {[]string{"--bootstrap-kubeconfig=f", "--csr-expiration=9m"}, false},
		"bad namespace":  {[]string{"--bootstrap-kubeconfig=f", "--registration-namespace=A"}, false},
	} {
		options := NewOptions()
		options.ClusterName = "cluster1"
		sets := options.Flags()
		flags := sets.FlagSet("all")
		for _, set := range []string{"agent", "registration"} {
			flags.AddFlagSet(sets.FlagSet(set))
		}
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		if err := options.Validate(); (err == nil) != test.want {
			t.Errorf("%s: Validate() = %v, want valid %t", name, err, test.want)
		}
	}
}
