package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/membership"
	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
)

// Agent connects one managed cluster to its hub.
type Agent struct {
	config *completedConfig
	// registrar is nil if the credentials on the hub are configured.
	registrar *membership.Registrar
	// session is the current session, or nil.
	session atomic.Pointer[session]
}

// New returns an agent. It makes no request.
func (c *Config) New() (*Agent, error) {
	completed, err := c.complete()
	if err != nil {
		return nil, err
	}
	a := &Agent{config: completed}
	if c.Registration != nil {
		c.Registration.Retained = a.retained
		a.registrar, err = membership.New(*c.Registration)
		return a, err
	}
	s, err := completed.configuredSession()
	if err != nil {
		return nil, err
	}
	a.session.Store(s)
	return a, nil
}

func (c *completedConfig) configuredSession() (*session, error) {
	return c.newSession(c.Hub, HubHash(c.Hub.Host), nil)
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

// Run runs the agent until ctx ends or a part fails, and returns when all parts have ended.
func (a *Agent) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return a.serveHealth(ctx) })
	parts.Go(func() error {
		if a.registrar != nil {
			return a.registrar.Run(ctx, a)
		}
		return a.serve(ctx, a.config.configuredSession)
	})
	return parts.Wait()
}

// Serve implements membership.Workload.
func (a *Agent) Serve(ctx context.Context, hub membership.Hub) error {
	defer a.session.Store(nil)
	return a.serve(ctx, func() (*session, error) { return a.config.newSession(hub.Config, hub.Hash, hub.Latest) })
}

// serve runs a session, and another one after each restore of the hub, until ctx ends or one fails.
func (a *Agent) serve(ctx context.Context, open func() (*session, error)) error {
	for again := false; ; again = true {
		s, err := open()
		if err != nil {
			return err
		}
		if again {
			s.restored.Expect()
		}
		a.session.Store(s)
		if err := s.run(ctx); !errors.Is(err, restored.ErrRestored) {
			return err
		}
		klog.FromContext(ctx).Info("The hub was restored from a snapshot; objects that it does not know stay until an administrator confirms the restore")
	}
}

// retained lists the objects that stay because a restored hub does not know them, or returns an empty
// string.
func (a *Agent) retained() string {
	if s := a.session.Load(); s != nil {
		return s.restored.Message()
	}
	return ""
}

// Remove implements membership.Workload.
func (a *Agent) Remove(ctx context.Context, hub membership.Hub) error {
	config := hub.Config
	if config == nil {
		// No request is sent to the hub.
		config = &rest.Config{}
	}
	s, err := a.config.newSession(config, hub.Hash, nil)
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
