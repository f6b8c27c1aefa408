package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	cliflag "k8s.io/component-base/cli/flag"

	"open-cluster-management.io/hub-apiserver/pkg/irsa/awstoken"
)

// tokenTimeout bounds the request for a token.
const tokenTimeout = time.Minute

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
			ctx, cancel := context.WithTimeout(command.Context(), tokenTimeout)
			defer cancel()
			token, expires, err := awstoken.Token(ctx, options)
			if err != nil {
				return err
			}
			credential, err := execCredential(token, expires)
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

// execCredential encodes a token for client-go. The kubeconfig of the agent requests version v1.
func execCredential(token string, expires time.Time) ([]byte, error) {
	return json.Marshal(&clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status:   &clientauthenticationv1.ExecCredentialStatus{Token: token, ExpirationTimestamp: &metav1.Time{Time: expires.UTC()}},
	})
}
