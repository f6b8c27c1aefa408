package work

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Executors decides with whose permissions a work acts. Every pass over a work
// asks before it reads or writes any object of the work, so an implementation
// sees all of them first and can refuse the work as a whole. Removal of objects
// is not asked for: it is decided when they are applied.
type Executors interface {
	// Admit returns the client with which the objects of the work are read and
	// written. A *Refusal says that the work must not act: nothing of it is read
	// or written, and what it applied before stays. Any other error is retried.
	Admit(ctx context.Context, work *workv1.ManifestWork, targets []Target) (dynamic.Interface, error)
}

// Target is one object that a work is about to act on.
type Target struct {
	// Ordinal is the index of the manifest in the work.
	Ordinal int
	// Resource, Namespace and Name say which object it is.
	Resource        schema.GroupVersionResource
	Namespace, Name string
	// Strategy says which requests applying the object takes.
	Strategy workv1.UpdateStrategyType
	// Removed is whether the object is removed with the work.
	Removed bool
}

// Refusal is the error of a work that must not act.
type Refusal struct {
	// Message is reported to the hub.
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// AgentOnly lets works without an executor act with the agent's own
// permissions, and refuses every other work.
type AgentOnly struct {
	Client dynamic.Interface
}

// Admit implements Executors.
func (a AgentOnly) Admit(_ context.Context, work *workv1.ManifestWork, _ []Target) (dynamic.Interface, error) {
	executor := work.Spec.Executor
	if executor == nil {
		return a.Client, nil
	}
	who := string(executor.Subject.Type)
	if account := executor.Subject.ServiceAccount; account != nil {
		who = fmt.Sprintf("%s %s/%s", executor.Subject.Type, account.Namespace, account.Name)
	}
	return nil, &Refusal{Message: fmt.Sprintf("not applied: the work names an executor (%s), and this agent does not execute works on behalf of an executor yet", who)}
}
