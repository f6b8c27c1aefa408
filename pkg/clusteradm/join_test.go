package clusteradm

import (
	"strings"
	"testing"
)

func TestJoinRefuses(t *testing.T) {
	valid := map[string]string{"--hub-token": "token", "--hub-apiserver": "https://127.0.0.1:1", "--cluster-name": "c1"}
	for name, test := range map[string]struct {
		flags map[string]string
		want  string
	}{
		"no token":             {map[string]string{"--hub-token": ""}, "--hub-token is required"},
		"no hub":               {map[string]string{"--hub-apiserver": ""}, "--hub-apiserver is required"},
		"hub over HTTP":        {map[string]string{"--hub-apiserver": "http://hub.example.com"}, "https://"},
		"no name":              {map[string]string{"--cluster-name": ""}, "--cluster-name is required"},
		"bad name":             {map[string]string{"--cluster-name": "Cluster_1"}, `--cluster-name "Cluster_1"`},
		"bad namespace":        {map[string]string{"--agent-namespace": "a/b"}, "--agent-namespace"},
		"two drivers":          {map[string]string{"--registration-auth": "csr,aws-irsa"}, "must be a single driver"},
		"unknown driver":       {map[string]string{"--registration-auth": "grpc"}, "--registration-auth must be"},
		"no ARN of the hub":    {map[string]string{"--registration-auth": "aws-irsa"}, "--eks-hub-cluster-arn is required"},
		"bad ARN of the hub":   {map[string]string{"--registration-auth": "aws-irsa", "--hub-cluster-arn": "arn:aws:eks"}, "--eks-hub-cluster-arn: "},
		"other partition":      {map[string]string{"--registration-auth": "aws-irsa", "--hub-cluster-arn": hubARN, "--managed-cluster-arn": strings.Replace(managedARN, "arn:aws:eks:us-east-1", "arn:aws-cn:eks:cn-north-1", 1)}, "partition"},
		"ARN without aws-irsa": {map[string]string{"--managed-cluster-arn": managedARN}, "require --registration-auth=aws-irsa"},
		"no certificates":      {map[string]string{"--ca-data": "bm9uZQ=="}, "--ca-data"},
		"no file":              {map[string]string{"--ca-file": "does-not-exist"}, "--ca-file"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"join"}
			for flag, value := range valid {
				if _, ok := test.flags[flag]; !ok {
					args = append(args, flag, value)
				}
			}
			for flag, value := range test.flags {
				args = append(args, flag, value)
			}
			runCommand(t, args...).refused(t, test.want)
		})
	}
}
