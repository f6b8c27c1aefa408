package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthenticationv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	cliflag "k8s.io/component-base/cli/flag"

	"open-cluster-management.io/hub-apiserver/pkg/irsa/awstoken"
)

const (
	// execInfo is the environment variable in which client-go passes its request to a
	// credential plugin.
	execInfo = "KUBERNETES_EXEC_INFO"
	// tokenTimeout bounds the request for a token.
	tokenTimeout = time.Minute
)

// newTokenCommand returns the command that kubeconfigs for a hub on EKS call.
func newTokenCommand() *cobra.Command {
	var options awstoken.Options
	command := &cobra.Command{
		Use:   "aws-token",
		Short: "Prints a token for a hub on EKS as a client-go credential plugin",
		Long: `Prints an ExecCredential with a token for an EKS cluster. It uses the default credentials
of the AWS SDK: in a pod, the IAM role of its ServiceAccount.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			version, err := execVersion(os.Getenv(execInfo))
			if err != nil {
				return err
			}
			ctx, cancel := contextWithSignals(command.Context(), tokenTimeout)
			defer cancel()
			token, expires, err := awstoken.Token(ctx, options)
			if err != nil {
				return err
			}
			credential, err := execCredential(version, token, expires)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), string(credential))
			return err
		},
	}
	var sets cliflag.NamedFlagSets
	flags := sets.FlagSet("aws-token")
	flags.StringVar(&options.Region, "region", "", "AWS region of the EKS cluster of the hub.")
	flags.StringVar(&options.ClusterName, "cluster-name", "", "Name of the EKS cluster of the hub.")
	flags.StringVar(&options.RoleARN, "role", "", "ARN of the IAM role to assume. If it is empty, the default credentials are used.")
	command.Flags().AddFlagSet(flags)
	// By default, the usage text would show the flags of the agent.
	cliflag.SetUsageAndHelpFunc(command, sets, 0)
	for _, required := range []string{"region", "cluster-name"} {
		// MarkFlagRequired fails only for a flag that is not defined.
		_ = command.MarkFlagRequired(required)
	}
	return command
}

// execVersion returns the version of ExecCredential that the caller requests. It defaults to v1.
func execVersion(info string) (schema.GroupVersion, error) {
	if info == "" {
		return clientauthenticationv1.SchemeGroupVersion, nil
	}
	var asked metav1.TypeMeta
	if err := json.Unmarshal([]byte(info), &asked); err != nil {
		return schema.GroupVersion{}, fmt.Errorf("%s: %w", execInfo, err)
	}
	for _, version := range []schema.GroupVersion{clientauthenticationv1.SchemeGroupVersion, clientauthenticationv1beta1.SchemeGroupVersion} {
		if asked.APIVersion == version.String() {
			return version, nil
		}
	}
	return schema.GroupVersion{}, fmt.Errorf("%s: apiVersion %q is not supported; it must be %s or %s", execInfo, asked.APIVersion,
		clientauthenticationv1.SchemeGroupVersion, clientauthenticationv1beta1.SchemeGroupVersion)
}

// execCredential encodes a token in a version of ExecCredential.
func execCredential(version schema.GroupVersion, token string, expires time.Time) ([]byte, error) {
	kind := metav1.TypeMeta{APIVersion: version.String(), Kind: "ExecCredential"}
	expiration := &metav1.Time{Time: expires.UTC()}
	if version == clientauthenticationv1beta1.SchemeGroupVersion {
		return json.Marshal(&clientauthenticationv1beta1.ExecCredential{TypeMeta: kind, Status: &clientauthenticationv1beta1.ExecCredentialStatus{
			Token: token, ExpirationTimestamp: expiration,
		}})
	}
	return json.Marshal(&clientauthenticationv1.ExecCredential{TypeMeta: kind, Status: &clientauthenticationv1.ExecCredentialStatus{
		Token: token, ExpirationTimestamp: expiration,
	}})
}
