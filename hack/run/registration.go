package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// maxLine is the maximum length of a printed line of output, in bytes.
const maxLine = 140

var (
	// applied matches a line of clusteradm about one object of the manifests.
	applied = regexp.MustCompile(`^\S+/\S+( in \S+)? (created|configured|unchanged|exists)$`)
	// secrets matches flags with long or secret values.
	secrets = regexp.MustCompile(`(--(?:hub-token|ca-data) \S{6})\S+`)
)

// ran prints a command of the registration, and the beginning of its output.
func ran(cluster *localhub.Cluster, words []string, output string) {
	line := strings.Join(words, " ")
	switch words[0] {
	case "clusteradm":
		line = fmt.Sprintf("$ clusteradm --kubeconfig %s %s", kubeconfigOf(cluster), strings.Join(words[1:], " "))
	case "POST":
		line = "# as an administrator of the hub: " + line
	case "aws":
		line = "$ " + line
	}
	fmt.Println(secrets.ReplaceAllString(line, "$1..."))
	counts := map[string]int{}
	var rest []string
	for text := range strings.Lines(output) {
		text = strings.TrimRight(text, "\n")
		if found := applied.FindStringSubmatch(text); found != nil {
			counts[found[2]]++
			continue
		}
		// After an empty line clusteradm prints the next steps, which the transcript shows.
		if text == "" {
			break
		}
		if len(text) > maxLine {
			text = text[:maxLine] + "..."
		}
		rest = append(rest, text)
	}
	var outcomes []string
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		outcomes = append(outcomes, fmt.Sprintf("%d %s", counts[outcome], outcome))
	}
	if len(outcomes) > 0 {
		fmt.Printf("(objects: %s)\n", strings.Join(outcomes, ", "))
	}
	for _, text := range rest {
		fmt.Println(text)
	}
}

// kubeconfigOf returns the path of the administrator's kubeconfig of a cluster.
func kubeconfigOf(cluster *localhub.Cluster) string {
	return filepath.Join(stateDir, cluster.Name+".kubeconfig")
}

// startAWS starts a server that simulates AWS and keeps its state for the next run.
func startAWS() (*fakeaws.Server, error) {
	server, err := fakeaws.New(fakeaws.Options{StateFile: filepath.Join(awsDir, "aws.json")})
	if err != nil {
		return nil, fmt.Errorf("AWS=fake: %w", err)
	}
	return server, nil
}

// irsaClusters returns the clusters that join with IAM roles: the last one, unless it joined with
// a certificate in an earlier run, and those that joined with IAM roles in earlier runs.
func irsaClusters(clusters []string) ([]string, error) {
	file := filepath.Join(awsDir, "irsa")
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known := strings.Fields(string(content))
	last := clusters[len(clusters)-1]
	if _, err := os.Stat(filepath.Join(awsDir, last)); errors.Is(err, fs.ErrNotExist) && !slices.Contains(known, last) {
		known = append(known, last)
		if err := os.WriteFile(file, []byte(strings.Join(known, "\n")+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(known, func(name string) bool { return !slices.Contains(clusters, name) }), nil
}

// showRegistration shows the registered clusters.
func showRegistration(ctx context.Context) error {
	return steps(ctx, os.Stdout, get("get", "managedclusters"), get("get", "mclr"), get("get", "certificatesigningrequests"))
}

// showAWS shows the IAM role and the access entry of a cluster.
func showAWS(aws *fakeaws.Server, cluster string) error {
	hub, err := irsa.ParseARN(localhub.HubARN)
	if err != nil {
		return err
	}
	managed, err := irsa.ParseARN(localhub.ManagedARN(cluster))
	if err != nil {
		return err
	}
	identity := irsa.Identity{Hub: hub, Managed: managed}
	roles := aws.Roles(hub.AccountID)
	role := slices.IndexFunc(roles, func(role fakeaws.Role) bool { return role.ARN == identity.HubRoleARN() })
	entries := aws.AccessEntries(hub.String())
	entry := slices.IndexFunc(entries, func(entry fakeaws.AccessEntry) bool { return entry.PrincipalARN == identity.HubRoleARN() })
	if role < 0 || entry < 0 {
		return fmt.Errorf("AWS has no role %s, or no access entry for it", identity.HubRoleARN())
	}
	fmt.Printf("# the IAM role and the access entry that the server created for %s\n", cluster)
	for _, shown := range []any{
		map[string]any{"role": roles[role].ARN, "trustPolicy": json.RawMessage(roles[role].TrustPolicy), "tags": roles[role].Tags},
		map[string]any{"accessEntry": entries[entry].PrincipalARN, "username": entries[entry].Username, "groups": entries[entry].Groups},
	} {
		content, err := json.MarshalIndent(shown, "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(content))
	}
	return nil
}
