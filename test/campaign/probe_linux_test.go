package campaign

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const (
	probePause = 200 * time.Millisecond
	// slow is the duration from which a probe has met the fault.
	slow = 3 * time.Second
)

// probe repeats an action until it succeeds, and again, and records how long each success took.
type probe struct {
	name    string
	act     func(ctx context.Context, number int) error
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	spans []span
	last  error
}

type span struct{ begin, end time.Time }

func startProbe(ctx context.Context, name string, act func(ctx context.Context, number int) error) *probe {
	ctx, cancel := context.WithCancel(ctx)
	p := &probe{name: name, act: act, cancel: cancel}
	p.running.Go(func() {
		for number := 0; ctx.Err() == nil; number++ {
			begin := time.Now()
			_ = wait.PollUntilContextCancel(ctx, probePause, true, func(ctx context.Context) (bool, error) {
				err := act(ctx, number)
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.last = err; err == nil {
					p.spans = append(p.spans, span{begin, time.Now()})
				}
				return err == nil, nil
			})
			select {
			case <-ctx.Done():
			case <-time.After(probePause):
			}
		}
	})
	return p
}

// succeeded waits for a success that began after the call.
func (p *probe) succeeded(ctx context.Context) error {
	from := time.Now()
	return await.Poll(ctx, func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.spans); n == 0 || p.spans[n-1].begin.Before(from) {
			return fmt.Errorf("no %s since %s: %w", p.name, time.Since(from).Round(time.Second), p.last)
		}
		return nil
	})
}

func (p *probe) stop() {
	p.cancel()
	p.running.Wait()
}

// longest returns the longest time until a success.
func (p *probe) longest() time.Duration {
	var out time.Duration
	for _, s := range p.spans {
		out = max(out, s.end.Sub(s.begin))
	}
	return out
}

// recovered returns the time from the start of a fault, or from its end, until the last success that took long. With
// an outage, everything waits until the end.
func (p *probe) recovered(begun, ended time.Time, outage bool) time.Duration {
	var out time.Duration
	for _, s := range p.spans {
		from := begun
		if outage || s.begin.After(ended) {
			from = ended
		}
		if s.end.After(from) && s.end.Sub(s.begin) > slow {
			out = max(out, s.end.Sub(from))
		}
	}
	return out
}

// deliver creates a ManifestWork, waits until the agent has applied it, and deletes it.
func deliver(ocm versioned.Interface, managed kubernetes.Interface, prefix string) func(context.Context, int) error {
	return func(ctx context.Context, number int) error {
		name := fmt.Sprintf("%s-%d", prefix, number)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := managed.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			err := ocm.WorkV1().ManifestWorks(framework.Cluster1).Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		_, created := ocm.WorkV1().ManifestWorks(framework.Cluster1).Create(ctx, framework.ConfigMapWork(name), metav1.CreateOptions{})
		if created != nil && !apierrors.IsAlreadyExists(created) {
			return created
		}
		return fmt.Errorf("the agent has not applied %s", name)
	}
}

// search searches for the cluster, which PostgreSQL stores.
func search(ocm versioned.Interface) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		found, err := ocm.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{
			Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:Cluster"}}},
		}, metav1.CreateOptions{})
		if err == nil && len(found.Status.Items) == 0 {
			return fmt.Errorf("the search found no clusters")
		}
		return err
	}
}
