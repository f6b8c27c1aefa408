package irsa

import (
	"maps"
	"slices"
	"strings"
)

// Commands returns shell commands that create the role in the account of the managed cluster with the aws command line.
// The parameters are the same as for ManagedClusterTrustPolicy. After a failure, the second and third command can be
// repeated.
func (i Identity) Commands(oidcProvider string, serviceAccounts ...string) []string {
	role := i.ManagedClusterRoleName()
	tags := i.Tags()
	tag := []string{"aws", "iam", "tag-role", "--role-name", role, "--tags"}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		tag = append(tag, "Key="+key+",Value="+tags[key])
	}
	return []string{
		ShellLine("aws", "iam", "create-role", "--role-name", role,
			"--assume-role-policy-document", i.ManagedClusterTrustPolicy(oidcProvider, serviceAccounts...).JSON()),
		ShellLine("aws", "iam", "put-role-policy", "--role-name", role, "--policy-name", role,
			"--policy-document", i.ManagedClusterAccessPolicy().JSON()),
		ShellLine(tag...),
	}
}

// ShellLine returns a command line of words that a shell does not change.
func ShellLine(words ...string) string {
	quoted := make([]string, 0, len(words))
	for _, word := range words {
		quoted = append(quoted, shellQuote(word))
	}
	return strings.Join(quoted, " ")
}

// shellQuote quotes a word unless it contains only characters without a meaning in any shell.
func shellQuote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=,./:@"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
