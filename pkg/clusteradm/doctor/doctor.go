// Package doctor contains the command that reports problems of a hub, of an agent and of their configuration in AWS.
package doctor

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

const checkTimeout = 15 * time.Second

// New returns the command clusteradm doctor.
func New(env cli.Environment) *cobra.Command {
	hub, subcommand := newHub(env)
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Report problems and what to do, without changes",
		Long:  subcommand.Long + "\n\nWithout a subcommand, the command does the same as clusteradm doctor hub.",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return hub.run(command.Context()) },
	}
	hub.addFlags(command)
	command.AddCommand(subcommand, newAgent(env), newAWS(env))
	return command
}

// report is what the commands doctor hub and doctor agent share.
type report struct {
	cli.Environment
	*cli.Clients
	output string
}

// check is the check of one subject.
type check struct {
	subject string
	// run returns the findings, or an error if the check could not be made. It ends with ctx.
	run func(ctx context.Context) ([]cli.Finding, error)
	// healthy is the text of the finding if there is no other, or empty for none.
	healthy string
}

func (c *check) findings(ctx context.Context) []cli.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings, err := c.run(ctx)
	switch {
	case err != nil:
		return append(findings, cli.Unknown(c.subject, err))
	case len(findings) == 0 && c.healthy != "":
		return []cli.Finding{cli.Healthy(c.subject, c.healthy)}
	}
	return findings
}

// run checks the connection to an API server, and then all other subjects concurrently, each with a deadline.
func (r *report) run(ctx context.Context, server string, checks []check) error {
	if err := cli.OneOf("output", r.output, cli.OutputTable, cli.OutputJSON); err != nil {
		return err
	}
	config, err := r.ToRESTConfig()
	if err != nil {
		return err
	}
	if r.Clients, err = cli.NewClients(impatient(config)); err != nil {
		return err
	}
	findings, usable := connect(ctx, r.Config, server)
	if usable {
		results := make([][]cli.Finding, len(checks))
		var wg sync.WaitGroup
		for i := range checks {
			wg.Go(func() { results[i] = checks[i].findings(ctx) })
		}
		wg.Wait()
		findings = slices.Concat(append([][]cli.Finding{findings}, results...)...)
	}
	if r.output == cli.OutputJSON {
		if err := r.WriteJSON(map[string]any{"findings": findings}); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			r.Say("%s", f)
		}
	}
	if count := cli.CountBad(findings); count > 0 {
		return fmt.Errorf("%d of %d checks failed", count, len(findings))
	}
	return nil
}

func undecided(subject, cause, remedy string) cli.Finding {
	return cli.Finding{State: cli.StateUnknown, Subject: subject, Cause: cause, Remedy: remedy}
}

// impatient returns a configuration whose clients do not repeat requests after Retry-After: the response is a finding.
func impatient(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return withoutRetry{inner} })
	return config
}
