package doctor

import (
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

func TestDoctorReadsItsFlags(t *testing.T) {
	const (
		hub     = "arn:aws:eks:us-west-2:111122223333:cluster/hub"
		managed = "arn:aws:eks:us-west-2:444455556666:cluster/eks1"
		long    = "arn:aws:eks:us-west-2:111122223333:cluster/a-hub-with-a-name-of-more-than-31-characters"
	)
	for name, test := range map[string]struct {
		change func(*awsDoctor)
		want   string // part of the error, or empty for no error
	}{
		"the hub":                   {func(*awsDoctor) {}, ""},
		"a cluster":                 {func(d *awsDoctor) { d.managedARN = managed }, ""},
		"a role":                    {func(d *awsDoctor) { d.hubARN, d.roleARN = long, "arn:aws:iam::111122223333:role/server" }, ""},
		"no hub":                    {func(d *awsDoctor) { d.hubARN = "" }, "--hub-cluster-arn"},
		"no cluster":                {func(d *awsDoctor) { d.managedARN = "eks1" }, "--managed-cluster-arn"},
		"a role with a path":        {func(d *awsDoctor) { d.roleARN = "arn:aws:iam::111122223333:role/platform/eks/server" }, ""},
		"a session":                 {func(d *awsDoctor) { d.roleARN = "arn:aws:sts::111122223333:assumed-role/server/session" }, "--hub-role-arn"},
		"another partition":         {func(d *awsDoctor) { d.managedARN = "arn:aws-cn:eks:cn-north-1:444455556666:cluster/eks1" }, "partition"},
		"only a name":               {func(d *awsDoctor) { d.clusterName = "cluster1" }, "--cluster-name requires --managed-cluster-arn"},
		"no mapping":                {func(d *awsDoctor) { d.eksAuth = "other" }, "--eks-auth must be"},
		"no role":                   {func(d *awsDoctor) { d.hubARN = long }, "--hub-role-arn is required"},
		"a role of another account": {func(d *awsDoctor) { d.roleARN = "arn:aws:iam::444455556666:role/server" }, "must be the ARN of a role in the account of the hub"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &awsDoctor{hubARN: hub, eksAuth: string(irsa.AccessEntry), agentNamespace: "agents", agentAccount: "agent"}
			test.change(d)
			inspection, err := d.inspection()
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("inspection() = %v, want an error with %q", err, test.want)
			}
			if err != nil {
				return
			}
			if inspection.ServerRole.Name == "" || inspection.AgentAccount != "agents:agent" || inspection.ServerAccount != "open-cluster-management-hub:hub-apiserver" {
				t.Errorf("inspection() = %+v, want a role and ServiceAccounts", inspection)
			}
			if d.managedARN != "" && inspection.ClusterName != "eks1" {
				t.Errorf("inspection() of a cluster without a name = %+v, want the name of the EKS cluster", inspection)
			}
		})
	}
}
