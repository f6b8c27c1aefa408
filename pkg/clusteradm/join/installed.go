package clusteradm

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// installedAgent is the agent that a managed cluster runs, with the settings that join has flags for.
type installedAgent struct {
	*installedProgram
	settings agentSettings
}

// readAgent returns the agent that runs in a namespace, or nil if it has no Deployment.
func readAgent(ctx context.Context, kube kubernetes.Interface, namespace string) (*installedAgent, error) {
	program, err := readProgram(ctx, kube, namespace, agentName, agentName)
	if err != nil || program == nil {
		return nil, err
	}
	a := &installedAgent{program, agentSettings{
		cluster: program.value("cluster-name", ""), namespace: namespace, image: imageSettings{image: program.image()},
		driver:  registerv1alpha1.RegistrationDriver(program.value("registration-auth", string(defaultDriver))),
		noWorks: program.value("works", "") == "false",
	}}
	if driver, known := driverSpellings[string(a.settings.driver)]; known {
		a.settings.driver = driver
	}
	if a.settings.driver == registerv1alpha1.DriverAWSIRSA {
		identity := &irsa.Identity{}
		for flag, arn := range map[string]*irsa.ARN{"hub-cluster-arn": &identity.Hub, "managed-cluster-arn": &identity.Managed} {
			if *arn, err = irsa.ParseARN(program.value(flag, "")); err != nil {
				return nil, fmt.Errorf("the Deployment %s in %s has --%s=%s: %w", agentName, namespace, flag, printable(program.value(flag, "")), err)
			}
		}
		a.settings.identity = identity
	}
	a.settings.roleARN, err = roleOf(ctx, kube, namespace, agentName)
	return a, err
}

// roleOf returns the IAM role of a ServiceAccount, or "" if it has none.
func roleOf(ctx context.Context, kube kubernetes.Interface, namespace, name string) (string, error) {
	account, err := kube.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the ServiceAccount %s in %s: %w", name, namespace, err)
	}
	return account.Annotations[roleARNAnnotation], nil
}

// bootstrapHub returns the address and the certificate authority of the hub in the bootstrap Secret. found is false if the
// Secret does not exist.
func bootstrapHub(ctx context.Context, kube kubernetes.Interface, namespace string) (server string, ca []byte, found bool, err error) {
	secret, err := kube.CoreV1().Secrets(namespace).Get(ctx, bootstrapSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil, false, nil
	}
	if err != nil {
		return "", nil, false, fmt.Errorf("the Secret %s in %s: %w", bootstrapSecret, namespace, err)
	}
	config, err := clientcmd.Load(secret.Data[kubeconfigKey])
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return "", nil, true, nil
	}
	if hub := config.Clusters[config.Contexts[config.CurrentContext].Cluster]; hub != nil {
		return hub.Server, hub.CertificateAuthorityData, true, nil
	}
	return "", nil, true, nil
}

// keep sets to the state of the cluster what no flag names.
func (j *joining) keep(ctx context.Context, kube kubernetes.Interface, installed *installedAgent) error {
	credentials, err := readCredentials(ctx, kube, j.settings.namespace)
	if err != nil {
		return err
	}
	server, ca, invited, err := bootstrapHub(ctx, kube, j.settings.namespace)
	if err != nil {
		return err
	}
	j.joined = credentials
	if j.registered() && installed == nil && !j.given("agent") {
		return fmt.Errorf("the agent in namespace %s has joined a hub, but has no Deployment: give --agent=%s if it runs elsewhere, or --agent=%s to install it",
			j.settings.namespace, modeExternal, modeDeploy)
	}
	j.keepSecret = j.address.token == "" && !j.given("hub-token", "hub-apiserver", "ca-file", "ca-data") && (j.registered() || invited)
	if j.registered() {
		server, ca = credentials.server(), credentials.content(credentials.hub.CertificateAuthorityData, credentials.hub.CertificateAuthority)
	}
	if j.address.server == "" {
		j.address.server = server
	}
	if j.address.server == server && len(ca) > 0 && !j.given("ca-file", "ca-data") {
		j.address.ca = ca
	}
	if credentials != nil && j.settings.cluster == "" {
		j.settings.cluster = credentials.cluster
	}
	if installed == nil {
		if !j.given("registration-auth") && !j.reset {
			if j.settings.roleARN, err = roleOf(ctx, kube, j.settings.namespace, agentName); err == nil && j.settings.roleARN != "" {
				j.warn("the flags of an agent that runs elsewhere are not known. It has the IAM role %s: give --registration-auth.", printable(j.settings.roleARN))
			}
		}
		return err
	}
	if j.settings.cluster == "" {
		j.settings.cluster = installed.settings.cluster
	}
	if j.reset {
		return nil
	}
	if !j.given("registration-auth") {
		j.auth = []string{string(installed.settings.driver)}
	}
	if identity := installed.settings.identity; identity != nil && strings.Join(j.auth, ",") == string(registerv1alpha1.DriverAWSIRSA) {
		if j.hubARN == "" {
			j.hubARN = identity.Hub.String()
		}
		if j.managedARN == "" {
			j.managedARN = identity.Managed.String()
		}
		j.kept = &installed.settings
	}
	return nil
}
