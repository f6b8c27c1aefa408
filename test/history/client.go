package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
)

const (
	// pageSize is the size of the pages of some lists.
	pageSize = 3
	// failurePause is the pause after a failed call.
	failurePause = 100 * time.Millisecond
)

// client calls the server, one call at a time, and records what it sees.
type client struct {
	run    *Run
	number int
	works  workclient.ManifestWorkInterface
	random *rand.Rand

	// These fields belong to the goroutine of the client, and to the Run after it has stopped.
	written    int
	seen       map[string]version
	newest     int64 // resource version that the client has seen
	operations []operation
	lists      []list

	mu       sync.Mutex
	outcomes map[Outcome]int
	failures map[string]int
	calls    []call
	last     error
}

func newClient(r *Run, number int) (*client, error) {
	clientset, err := r.connect(number, requestTimeout)
	if err != nil {
		return nil, fmt.Errorf("client %d: %w", number, err)
	}
	return &client{
		run: r, number: number, works: clientset.WorkV1().ManifestWorks(r.config.Namespace), random: r.random(number),
		seen: map[string]version{}, outcomes: map[Outcome]int{}, failures: map[string]int{},
	}, nil
}

// work calls the server until ctx ends. It does not interrupt the last call.
func (c *client) work(ctx context.Context) {
	for ctx.Err() == nil {
		pause := time.Duration(c.random.Int64N(2 * int64(c.run.config.Pause)))
		if err := c.step(context.WithoutCancel(ctx)); err != nil {
			pause += failurePause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// step makes one random call.
func (c *client) step(ctx context.Context) error {
	generation := c.run.generation(c.run.since())
	key := c.run.key(generation, c.random.IntN(numberOfKeys))
	seen, known := c.seen[key]
	known = known && seen.exists
	switch n := c.random.IntN(100); {
	case n < 20:
		return c.get(ctx, key, "")
	case n < 26:
		return c.get(ctx, key, "0")
	case n < 32:
		return c.get(ctx, key, strconv.FormatInt(c.newest, 10))
	case n < 37:
		return c.list(ctx, generation, "", 0)
	case n < 39:
		return c.list(ctx, generation, "", pageSize)
	case n < 42:
		return c.list(ctx, generation, "0", 0)
	case n < 45:
		return c.list(ctx, generation, strconv.FormatInt(c.newest, 10), 0)
	case n < 57 || !known:
		return c.create(ctx, key)
	case n < 75:
		return c.update(ctx, key, seen)
	case n < 84:
		return c.patch(ctx, key, 0)
	case n < 90:
		return c.patch(ctx, key, seen.rv)
	default:
		return c.delete(ctx, key, seen.uid)
	}
}

// get reads an object: with a quorum, or with a resource version from the server's cache.
func (c *client) get(ctx context.Context, key, rv string) error {
	o := operation{key: key, kind: get, cached: rv != ""}
	if o.cached {
		var err error
		if o.rv, err = strconv.ParseInt(rv, 10, 64); err != nil {
			return err
		}
	}
	return c.do(ctx, o, func(ctx context.Context) (*workv1.ManifestWork, error) {
		return c.works.Get(ctx, key, metav1.GetOptions{ResourceVersion: rv})
	})
}

func (c *client) create(ctx context.Context, key string) error {
	o := operation{key: key, kind: create, value: c.nextValue()}
	return c.do(ctx, o, func(ctx context.Context) (*workv1.ManifestWork, error) {
		return c.works.Create(ctx, c.object(o), metav1.CreateOptions{})
	})
}

func (c *client) update(ctx context.Context, key string, seen version) error {
	o := operation{key: key, kind: update, value: c.nextValue(), uid: seen.uid, rv: seen.rv}
	return c.do(ctx, o, func(ctx context.Context) (*workv1.ManifestWork, error) {
		return c.works.Update(ctx, c.object(o), metav1.UpdateOptions{})
	})
}

// patch replaces the value. With rv, the patch applies to this resource version only.
func (c *client) patch(ctx context.Context, key string, rv int64) error {
	o := operation{key: key, kind: patch, value: c.nextValue(), rv: rv}
	body := map[string]any{"spec": map[string]any{"workload": map[string]any{"manifests": []json.RawMessage{manifest(o.value)}}}}
	if rv != 0 {
		body["metadata"] = map[string]string{"resourceVersion": strconv.FormatInt(rv, 10)}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, o, func(ctx context.Context) (*workv1.ManifestWork, error) {
		return c.works.Patch(ctx, key, types.MergePatchType, data, metav1.PatchOptions{})
	})
}

func (c *client) delete(ctx context.Context, key string, uid types.UID) error {
	o := operation{key: key, kind: remove, uid: uid}
	return c.do(ctx, o, func(ctx context.Context) (*workv1.ManifestWork, error) {
		return nil, c.works.Delete(ctx, key, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	})
}

// list lists the objects of a generation, in pages if limit is not 0.
func (c *client) list(ctx context.Context, generation int, rv string, limit int64) error {
	answer := list{client: c.number, items: map[string]version{}, cached: rv != ""}
	for slot := range numberOfKeys {
		answer.keys = append(answer.keys, c.run.key(generation, slot))
	}
	if answer.cached {
		var err error
		if answer.notOlder, err = strconv.ParseInt(rv, 10, 64); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer.call = c.run.since()
	options := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s=%s,%s=%d", runLabel, c.run.id, generationLabel, generation), ResourceVersion: rv, Limit: limit}
	err := c.pages(ctx, options, &answer)
	answer.ret = c.run.since()
	outcome := OK
	if err != nil {
		outcome = Failed
	} else {
		c.lists = append(c.lists, answer)
		c.newest = max(c.newest, answer.rv)
		for _, key := range answer.keys {
			c.observe(key, answer.items[key], answer.rv)
		}
	}
	if apierrors.IsResourceExpired(err) {
		// The server compacts between two pages. The client must list again.
		err = nil
	}
	c.note(call{begin: answer.call, end: answer.ret, succeeded: err == nil}, err, outcome)
	return err
}

func (c *client) pages(ctx context.Context, options metav1.ListOptions, answer *list) error {
	for {
		page, err := c.works.List(ctx, options)
		if err != nil {
			return err
		}
		if answer.rv, err = strconv.ParseInt(page.ResourceVersion, 10, 64); err != nil {
			return fmt.Errorf("list: metadata.resourceVersion: %w", err)
		}
		for i := range page.Items {
			if answer.items[page.Items[i].Name], err = versionOf(&page.Items[i]); err != nil {
				return err
			}
		}
		if page.Continue == "" {
			return nil
		}
		options.Continue, options.ResourceVersion = page.Continue, ""
	}
}

// do makes a call and records its attempts.
func (c *client) do(ctx context.Context, o operation, request func(context.Context) (*workv1.ManifestWork, error)) error {
	var attempts []attempt
	begin := c.run.since()
	timeout, cancel := context.WithTimeout(context.WithValue(ctx, attemptsKey{}, &attempts), requestTimeout)
	defer cancel()
	work, err := request(timeout)
	if err == nil && work != nil {
		o.got, err = versionOf(work)
	}
	end := c.run.since()

	o.client, o.outcome, o.call, o.ret = c.number, outcomeOf(err, o.key), begin, end
	for i, a := range attempts {
		if i < len(attempts)-1 {
			if o.kind.writes() && !a.harmless {
				lost := o
				lost.call, lost.ret, lost.outcome, lost.got = a.call, forever, Unknown, version{}
				c.operations = append(c.operations, lost)
			}
		} else if o.kind.writes() {
			o.call = a.call
		}
	}
	switch {
	case o.outcome == OK:
		c.newest = max(c.newest, o.got.rv)
	case o.outcome == Refused:
		o.reason = string(apierrors.ReasonForError(err))
		err = nil
	case o.outcome == Unknown:
		o.ret = forever
	}
	if o.outcome == OK || o.outcome == Refused || o.outcome == Unknown && o.kind.writes() {
		c.operations = append(c.operations, o)
	}
	if o.outcome == OK && !o.cached {
		c.observe(o.key, o.got, o.got.rv)
	} else if o.outcome == Refused && o.reason == string(metav1.StatusReasonNotFound) {
		delete(c.seen, o.key)
	}
	c.note(call{begin: begin, end: end, succeeded: err == nil}, err, o.outcome)
	return err
}

// observe remembers an object as it is at a resource version.
func (c *client) observe(key string, v version, at int64) {
	if !v.exists {
		delete(c.seen, key)
	} else if at >= c.seen[key].rv {
		c.seen[key] = v
	}
}

func (c *client) note(done call, err error, outcome Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, done)
	c.outcomes[outcome]++
	if err != nil {
		c.last = err
		c.failures[describe(err)]++
	}
}

// succeeded returns the number of calls that succeeded.
func (c *client) succeeded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes[OK] + c.outcomes[Refused]
}

// succeededSince reports whether the client has completed a call that began after a time.
func (c *client) succeededSince(from time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.calls) - 1; i >= 0 && c.calls[i].begin >= from; i-- {
		if c.calls[i].succeeded {
			return true
		}
	}
	return false
}

// failure returns the error of the last failed call.
func (c *client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return errors.New("none")
	}
	return c.last
}

// nextValue returns a value that no other write of the run has.
func (c *client) nextValue() string {
	c.written++
	return fmt.Sprintf("%d-%d", c.number, c.written)
}

func (c *client) object(o operation) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.run.config.Namespace, Name: o.key, UID: o.uid, Labels: c.run.labels(o.key),
	}}
	if o.rv != 0 {
		work.ResourceVersion = strconv.FormatInt(o.rv, 10)
	}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: manifest(o.value)}}}
	return work
}

// configMap is the manifest of each ManifestWork.
type configMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Data       map[string]string `json:"data"`
}

func manifest(value string) json.RawMessage {
	data, err := json.Marshal(configMap{APIVersion: "v1", Kind: "ConfigMap",
		Metadata: map[string]string{"name": "history", "namespace": "default"}, Data: map[string]string{"value": value}})
	if err != nil {
		panic(err) // strings can be marshalled
	}
	return data
}

// valueOf returns the value in a ManifestWork, or its manifests if they are not those of a client.
func valueOf(work *workv1.ManifestWork) string {
	manifests := work.Spec.Workload.Manifests
	var content configMap
	if len(manifests) != 1 || json.Unmarshal(manifests[0].Raw, &content) != nil || content.Data["value"] == "" {
		return fmt.Sprintf("manifests %s", manifests)
	}
	return content.Data["value"]
}
