package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/registration"
)

// Agent connects one managed cluster to its hub.
type Agent struct {
	config CompletedConfig
	// registrar is nil if the agent was given its credentials on the hub.
	registrar *registration.Registrar
	// session is what runs at present; nil if nothing does.
	session atomic.Pointer[session]
}

// New returns an agent. It makes no request.
func (c CompletedConfig) New() (*Agent, error) {
	a := &Agent{config: c}
	if c.Registration != nil {
		c.Registration.Stuck = a.stuck
		var err error
		a.registrar, err = registration.New(*c.Registration)
		return a, err
	}
	s, err := c.newSession(c.Hub, HubHash(c.Hub.Host))
	if err != nil {
		return nil, err
	}
	a.session.Store(s)
	return a, nil
}

// Ready reports whether the agent does its work; the error says what it waits for.
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

// stuck returns an error that names the objects from which workers do not return; nil
// if there are none.
func (a *Agent) stuck() error {
	if s := a.session.Load(); s != nil {
		return s.stuck()
	}
	return nil
}

// Run works until ctx ends or a part fails, and returns when all parts have ended.
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

// Serve does what the hub asks for until ctx ends. It implements registration.Workload.
func (a *Agent) Serve(ctx context.Context, hub registration.Hub) error {
	s, err := a.config.newSession(hub.Config, hub.Hash)
	if err != nil {
		return err
	}
	a.session.Store(s)
	defer a.session.Store(nil)
	return s.run(ctx)
}

// Remove removes what was done for the hub. It implements registration.Workload.
func (a *Agent) Remove(ctx context.Context, hub registration.Hub) error {
	config := hub.Config
	if config == nil {
		// No request goes there.
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
	if err := s.works.LetGo(ctx); err != nil {
		return fmt.Errorf("all is removed, but the hub does not know it: %w", err)
	}
	return nil
}
