package join

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/kubernetes"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

type installedAgent struct {
	*program.Installed
	settings agentSettings
}

// readAgent returns the agent that runs in a namespace, or nil if it has no Deployment.
func readAgent(ctx context.Context, kube kubernetes.Interface, namespace string) (*installedAgent, error) {
	found, err := program.Read(ctx, kube, namespace, manifests.AgentName, manifests.AgentName)
	if err != nil || found == nil {
		return nil, err
	}
	a := &installedAgent{found, agentSettings{
		cluster: found.Value("cluster-name", ""), namespace: namespace, image: program.Images{Image: found.Image()},
		driver:  registerv1alpha1.RegistrationDriver(found.Value("registration-auth", string(program.DefaultDriver))),
		noWorks: found.Value("works", "") == "false",
	}}
	if drivers, err := program.ParseDrivers([]string{string(a.settings.driver)}); err == nil {
		a.settings.driver = drivers[0]
	}
	if a.settings.driver == registerv1alpha1.DriverAWSIRSA {
		identity := &irsa.Identity{}
		for flag, arn := range map[string]*irsa.ARN{"hub-cluster-arn": &identity.Hub, "managed-cluster-arn": &identity.Managed} {
			if *arn, err = irsa.ParseARN(found.Value(flag, "")); err != nil {
				return nil, found.Unreadable(flag, err)
			}
		}
		a.settings.identity = identity
	}
	a.settings.roleARN, err = program.RoleOf(ctx, kube, namespace, manifests.AgentName)
	return a, err
}

// keep sets to the state of the cluster what no flag names.
func (j *joining) keep(ctx context.Context) error {
	var err error
	if j.joined, err = ReadCredentials(ctx, j.Kube, j.settings.namespace, HubSecret); err != nil {
		return err
	}
	invitation, err := ReadCredentials(ctx, j.Kube, j.settings.namespace, BootstrapSecret)
	if err != nil && invitation == nil {
		return err // a damaged Secret can be replaced
	}
	if j.joined.Complete() && j.installed == nil && !j.Given("agent") {
		return fmt.Errorf("the agent in namespace %s has joined a hub, but has no Deployment: give --agent=%s if it runs elsewhere, or --agent=%s to install it",
			j.settings.namespace, program.External, program.Deploy)
	}
	j.keepSecret = j.address.token == "" && !j.Given("hub-token", "hub-apiserver", "ca-file", "ca-data") && (j.joined.Complete() || invitation != nil)
	server, ca := invitation.server()
	if j.joined.Complete() {
		server, ca = j.joined.server()
	}
	j.address.server = cmp.Or(j.address.server, server)
	if j.address.server == server && len(ca) > 0 && !j.Given("ca-file", "ca-data") {
		j.address.ca = ca
	}
	if j.joined != nil && j.settings.cluster == "" {
		j.settings.cluster = j.joined.Cluster
	}
	if j.installed == nil {
		if !j.Given("registration-auth") && !j.Reset {
			if j.settings.roleARN, err = program.RoleOf(ctx, j.Kube, j.settings.namespace, manifests.AgentName); err != nil {
				return err
			}
			if j.settings.roleARN != "" {
				j.Warn("the flags of an agent that runs elsewhere are not known. It has the IAM role %s: give --registration-auth.", cli.Printable(j.settings.roleARN))
			}
		}
		return nil
	}
	installed := &j.installed.settings
	j.settings.cluster = cmp.Or(j.settings.cluster, installed.cluster)
	if j.Reset {
		return nil
	}
	j.Current = installed.image.Image
	if !j.Given("registration-auth") {
		j.auth = []string{string(installed.driver)}
	}
	if identity := installed.identity; identity != nil && strings.Join(j.auth, ",") == string(registerv1alpha1.DriverAWSIRSA) {
		j.hubARN, j.managedARN = cmp.Or(j.hubARN, identity.Hub.String()), cmp.Or(j.managedARN, identity.Managed.String())
		j.kept = installed
	}
	return nil
}
