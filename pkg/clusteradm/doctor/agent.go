package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// fromHere is part of findings about connections: the agent may have another network.
const fromHere = "hub, as the agent, from this machine"

// agentDoctor is the command clusteradm doctor agent.
type agentDoctor struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	output, namespace string

	config *rest.Config
	kube   kubernetes.Interface
}

func newDoctorAgent(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	d := &agentDoctor{access: access, streams: streams, output: outputTable, namespace: defaultAgentNamespace}
	command := &cobra.Command{
		Use:   "agent",
		Short: "Report problems of the agent of a managed cluster",
		Long: `Report problems of the agent of a managed cluster: its Deployment, its credentials, its permissions, its connection
to the hub and the clocks. The command prints one line for each subject: its state, the cause and what to do.
It exits with 1 if one is bad. It only reads. To check the connection, it uses the credentials of the agent,
from the machine on which it runs.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return d.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVarP(&d.output, "output", "o", d.output, "Output format: table or json.")
	flags.StringVar(&d.namespace, "agent-namespace", d.namespace, "Namespace of the agent on the managed cluster.")
	return command
}

func (d *agentDoctor) run(ctx context.Context) error {
	if d.output != outputTable && d.output != outputJSON {
		return fmt.Errorf("--output must be %s or %s, not %q", outputTable, outputJSON, d.output)
	}
	var err error
	if d.config, err = d.access.ToRESTConfig(); err != nil {
		return err
	}
	d.config = impatient(d.config)
	if d.kube, err = kubernetes.NewForConfig(d.config); err != nil {
		return err
	}
	findings, usable := connect(ctx, d.config, "managed cluster's API server")
	if usable {
		findings = append(findings, runChecks(ctx, d.deployment, d.permissions, d.identity)...)
	}
	return printFindings(d.streams.Out, d.output, findings)
}

// deployment checks the Deployment of the agent, and its version.
func (d *agentDoctor) deployment(ctx context.Context) []finding {
	subject := "Deployment " + d.namespace + "/" + agentName
	found, err := deploymentFinding(ctx, d.kube, d.namespace, agentName)
	switch {
	case err != nil:
		return []finding{unknown(subject, err)}
	case found == nil:
		return []finding{warning(subject, "does not exist", "run clusteradm join, unless the agent runs outside of the cluster; if it is in another namespace, set --agent-namespace")}
	}
	findings := []finding{*found}
	deployment, err := d.kube.AppsV1().Deployments(d.namespace).Get(ctx, agentName, metav1.GetOptions{})
	if err == nil {
		findings = append(findings, agentVersion(deployment))
	}
	return findings
}

// agentVersion returns a finding about the version in the tag of the agent's image.
func agentVersion(deployment *appsv1.Deployment) finding {
	const subject = "version of the agent"
	for _, container := range deployment.Spec.Template.Spec.Containers {
		image, _, _ := strings.Cut(container.Image, "@")
		if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
			return skew(subject, image[at+1:], version.Short())
		}
	}
	return finding{State: stateUnknown, Subject: subject, Cause: "its image has no tag", Remedy: "see the log of the agent"}
}

// permissions checks what the managed cluster allows the ServiceAccount of the agent.
func (d *agentDoctor) permissions(ctx context.Context) []finding {
	const subject = "permissions of the agent on the managed cluster"
	objects, err := agentManifests(d.namespace)
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	var wanted []authorizationv1.ResourceAttributes
	for _, object := range objects {
		rules, err := rulesOf(object)
		if err != nil {
			return []finding{unknown(subject, err)}
		}
		// An administrator may narrow what a hub may apply.
		if object.GetName() != agentClusterRole+":apply" && object.GetName() != agentClusterRole+":executor" {
			wanted = append(wanted, attributesOf(object.GetNamespace(), rules)...)
		}
	}
	missing, err := missingPermissions(ctx, d.kube, "system:serviceaccount:"+d.namespace+":"+agentName, wanted)
	switch {
	case err != nil:
		return []finding{unknown(subject, err)}
	case len(missing) > 0:
		return []finding{bad(subject, "role missing or incomplete: ServiceAccount "+d.namespace+"/"+agentName+" cannot "+some(missing), "apply artifacts/agent/managed: run clusteradm join --yes, which keeps the settings of the agent")}
	}
	return []finding{healthy(subject, "complete")}
}

// identity checks the credentials of the agent, and its access to the hub with them.
func (d *agentDoctor) identity(ctx context.Context) []finding {
	subject := "Secret " + d.namespace + "/" + hubSecret
	credentials, err := readCredentials(ctx, d.kube, d.namespace)
	switch {
	case err != nil && denied(errors.Unwrap(err)):
		return []finding{unknown(subject, errors.Unwrap(err))}
	case err != nil:
		return []finding{bad(subject, err.Error(), "delete the Secret to register again")}
	case credentials == nil:
		return append([]finding{bad(subject, "does not exist: the agent has not registered", "see the log of the agent, and the next lines")}, d.bootstrap(ctx)...)
	case credentials.hub == nil:
		return append([]finding{bad(subject, "has no kubeconfig: the hub has not accepted the cluster, or not signed its certificate", "on the hub, run clusteradm accept --clusters "+credentials.cluster+" and clusteradm doctor")}, d.bootstrap(ctx)...)
	}
	findings := []finding{healthy(subject, "identity of "+credentials.cluster)}
	hub, err := credentials.restConfig(ctx, d.config, d.kube)
	if err != nil {
		return append(findings, finding{State: stateUnknown, Subject: fromHere, Cause: err.Error(), Remedy: "read the log of the agent"})
	}
	reached, usable := connect(ctx, hub, fromHere)
	findings = append(findings, reached...)
	if !usable {
		// An agent without valid credentials registers again with the bootstrap Secret.
		return append(findings, d.bootstrap(ctx)...)
	}
	client, err := versioned.NewForConfig(impatient(hub))
	if err != nil {
		return append(findings, unknown("access of the agent on the hub", err))
	}
	return append(findings, membership(ctx, client, credentials.cluster))
}

// membership checks the access of an agent to its ManagedCluster.
func membership(ctx context.Context, hub versioned.Interface, name string) finding {
	subject := "ManagedCluster " + name + " on the hub"
	cluster, err := hub.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return bad(subject, "the hub denies the agent access to it: the cluster is denied or deleted, or a role is missing", "on the hub, run clusteradm doctor, and clusteradm accept --clusters "+name)
	case apierrors.IsUnauthorized(err):
		return bad(subject, "the hub rejects the credentials of the agent (401)", "the agent registers again; if the ManagedCluster was deleted, delete the Secret "+hubSecret)
	case apierrors.IsNotFound(err):
		return bad(subject, "does not exist", "delete the Secret "+hubSecret+" to register again")
	case apierrors.IsServiceUnavailable(err):
		return bad(subject, "the server on the hub is not available: "+err.Error(), "on the hub, run clusteradm doctor")
	case err != nil:
		return unknown(subject, err)
	case !cluster.Spec.HubAcceptsClient:
		return bad(subject, "the hub has not accepted the cluster, or denied it", "on the hub, run clusteradm accept --clusters "+name)
	case cluster.DeletionTimestamp != nil:
		return warning(subject, "is being deleted", "wait until the agent has removed the applied objects")
	}
	if available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable); available == nil || available.Status != metav1.ConditionTrue {
		cause := "the agent has not reported yet"
		if available != nil {
			cause = available.Reason + ": " + available.Message
		}
		return bad(subject, cause, "start the agent; read its log")
	}
	return healthy(subject, "accepted and available")
}

// bootstrap checks the credentials with which the agent registers. It does not run programs or read
// files that the Secret names.
func (d *agentDoctor) bootstrap(ctx context.Context) []finding {
	subject := "Secret " + d.namespace + "/" + bootstrapSecret
	const remedy = "run clusteradm join --hub-token with a token that clusteradm get token prints on the hub"
	secret, err := d.kube.CoreV1().Secrets(d.namespace).Get(ctx, bootstrapSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []finding{bad(subject, "does not exist, so the agent cannot register", remedy)}
	case err != nil:
		return []finding{unknown(subject, err)}
	}
	config, err := clientcmd.Load(secret.Data[kubeconfigKey])
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return []finding{bad(subject, "contains no valid kubeconfig", remedy)}
	}
	current := config.Contexts[config.CurrentContext]
	hub, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if hub == nil || user == nil {
		return []finding{bad(subject, "the current context of its kubeconfig is not complete", remedy)}
	}
	access := &rest.Config{Host: hub.Server, BearerToken: user.Token, TLSClientConfig: rest.TLSClientConfig{
		Insecure: hub.InsecureSkipTLSVerify, ServerName: hub.TLSServerName, CAData: hub.CertificateAuthorityData,
		CertData: user.ClientCertificateData, KeyData: user.ClientKeyData,
	}}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return []finding{bad(subject, err.Error(), remedy)}
	}
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return []finding{bad(subject, "its token has expired or is not valid", remedy)}
	case err != nil && !apierrors.IsForbidden(err):
		if os.IsTimeout(err) || ctx.Err() != nil {
			err = fmt.Errorf("no response within %s", checkTimeout.Round(time.Second))
		}
		return []finding{{State: stateUnknown, Subject: subject, Cause: err.Error(), Remedy: "see the line of the connection to the hub"}}
	}
	return []finding{healthy(subject, "its credentials are valid")}
}
