package handover

import (
	"context"
	"fmt"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// Step is a step of a command. It can be repeated.
type Step struct {
	Name string
	Run  func(context.Context) error
}

// RunSteps runs steps in order, and prints the name of each. The error of a step contains the remedy.
func RunSteps(ctx context.Context, env cli.Environment, remedy string, steps []Step) error {
	begin := time.Now()
	for i, s := range steps {
		env.Say("%5.1fs  %d/%d  %s", time.Since(begin).Seconds(), i+1, len(steps), s.Name)
		if err := s.Run(ctx); err != nil {
			return fmt.Errorf("%s: %w; %s", s.Name, err, remedy)
		}
	}
	env.Say("%5.1fs  done", time.Since(begin).Seconds())
	return nil
}
