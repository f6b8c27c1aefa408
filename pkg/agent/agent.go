package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/membership"
)

// Agent connects one managed cluster to its hub.
type Agent struct {
	config CompletedConfig
	// registrar is nil if the credentials on the hub are configured.
	registrar *membership.Registrar
	// session is the current session, or nil.
	session atomic.Pointer[session]
}

// New returns an agent. It makes no request.
func (c CompletedConfig) New() (*Agent, error) {
	a := &Agent{config: c}
	if c.Registration != nil {
		c.Registration.Stuck = a.stuck
		var err error
		a.registrar, err = membership.New(*c.Registration)
		return a, err
	}
	s, err := c.newSession(c.Hub, HubHash(c.Hub.Host))
	if err != nil {
		return nil, err
	}
	a.session.Store(s)
	return a, nil
}

// Ready returns an error with the reason why the agent is not ready, or nil.
func (a *Agent) Ready() error {
	if a.registrar != nil {
		if message := a.registrar.Waiting(); message != "" {
			return errors.New(message)
		}
	}
	s := a.session.Load()
	if s == nil {
		return errors.New("the agent is starting")
	}
	return s.ready()
}

// stuck returns an error that names the objects from which workers do not return, or nil if
// there are none.
func (a *Agent) stuck() error {
	if s := a.session.Load(); s != nil {
		return s.stuck()
	}
	return nil
}

// Run runs the agent until ctx ends or a part fails, and returns when all parts have ended.
func (a *Agent) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return a.serveHealth(ctx) })
	parts.Go(func() error {
		if a.registrar != nil {
			return a.registrar.Run(ctx, a)
		}
		return a.session.Load().run(ctx)
	})
	return parts.Wait()
}

// Serve implements membership.Workload.
func (a *Agent) Serve(ctx context.Context, hub membership.Hub) error {
	s, err := a.config.newSession(hub.Config, hub.Hash)
	if err != nil {
		return err
	}
	a.session.Store(s)
	defer a.session.Store(nil)
	return s.run(ctx)
}

// Remove implements membership.Workload.
func (a *Agent) Remove(ctx context.Context, hub membership.Hub) error {
	config := hub.Config
	if config == nil {
		// No request is sent to the hub.
		config = &rest.Config{}
	}
	s, err := a.config.newSession(config, hub.Hash)
	if err != nil {
		return err
	}
	if err := s.remove(ctx); err != nil {
		return err
	}
	if s.works == nil || hub.Config == nil {
		return nil
	}
	if err := s.works.RemoveFinalizers(ctx); err != nil {
		return fmt.Errorf("all objects are removed, but the finalizers on the hub are not: %w", err)
	}
	return nil
}
