package search

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// slowReport is a report whose body the test writes.
type slowReport struct {
	body *io.PipeWriter
	// answered receives one error, nil if the report is taken.
	answered chan error
}

// slowReport begins a report with the head of its body. It ends with the test at the latest.
func (r *reporter) slowReport(t *testing.T, full bool, head string) *slowReport {
	t.Helper()
	body, pipe := io.Pipe()
	s := &slowReport{body: pipe, answered: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		// What nobody reads any more must not block.
		_ = pipe.CloseWithError(io.ErrClosedPipe)
	})
	request := r.agent.OCM.SearchV1alpha1().RESTClient().Post().AbsPath(syncPath(r.name)).
		SetHeader("Content-Type", "application/json").Body(body).MaxRetries(0)
	if full {
		request.SetHeader(inventory.OverwriteHeader, "true")
	}
	go func() {
		err := request.Do(ctx).Error()
		_ = body.Close()
		s.answered <- err
	}()
	if _, err := io.WriteString(pipe, head); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	return s
}

// TestSearchReportsOneAtATime: while a report of a cluster comes in slowly, another one of the
// same cluster is told to come back, those of others are taken, and nothing of it is found.
func TestSearchReportsOneAtATime(t *testing.T) { onShared(t, searchReportsOneAtATime) }

func searchReportsOneAtATime(t *testing.T, f *fleet) {
	r, other := f.reporter(t), f.reporter(t)
	resources, edges := r.shop()
	r.has(t, resources, edges...)
	head, tail := `{"addResources":[{"kind":"Widget","uid":"`+r.name+`/slow","resourceString":"widgets","properties":{"kind":"Widget","name":"slow"`, `}}]}`
	slow := r.slowReport(t, false, head)
	again := func(ctx context.Context) error {
		return r.agent.OCM.SearchV1alpha1().RESTClient().Post().AbsPath(syncPath(r.name)).
			SetHeader("Content-Type", "application/json").Body([]byte("{}")).MaxRetries(0).Do(ctx).Error()
	}
	var refused error
	framework.Eventually(t, "a second report is refused", func(ctx context.Context) error {
		select {
		case err := <-slow.answered:
			// It met one of those below, and was refused itself. The next one gets a start.
			isRefused(t, err, http.StatusTooManyRequests)
			slow = r.slowReport(t, false, head)
			return errors.New("it came first")
		default:
		}
		if refused = again(ctx); refused == nil {
			// It may have kept the slow one out, whose body is read to the end before it is told so.
			_ = slow.body.CloseWithError(io.ErrClosedPipe)
			select {
			case <-slow.answered:
			case <-ctx.Done():
				return ctx.Err()
			}
			slow = r.slowReport(t, false, head)
			return errors.New("it is taken")
		}
		return nil
	})
	status := isRefused(t, refused, http.StatusTooManyRequests)
	if seconds, asked := apierrors.SuggestsClientDelay(refused); !asked || seconds < 1 || !strings.Contains(status.Message, "another report") {
		t.Errorf("it does not say when to come back: %+v", status)
	}
	framework.Must(other.sync(t.Context(), inventory.Sync{AddResources: []inventory.Resource{other.resource("Widget", "", "quick", nil)}}))(t)
	finds(t, f.OCM, "kind:Widget cluster:"+r.name+","+other.name, "widget.quick")
	if result := searched(t, f.OCM, "kind:Pod cluster:"+r.name); result.Count != 4 {
		t.Errorf("meanwhile %d of what was reported before are found", result.Count)
	}
	if _, err := io.WriteString(slow.body, tail); err != nil {
		t.Fatal(err)
	}
	if err := slow.body.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-slow.answered; err != nil {
		t.Fatalf("the slow report: %v", err)
	}
	finds(t, f.OCM, "kind:Widget cluster:"+r.name, "slow")
	framework.Eventually(t, "the next one is taken", again)
}

// TestSearchReportsThatEndEarly leave what was reported before.
func TestSearchReportsThatEndEarly(t *testing.T) { onShared(t, searchReportsThatEndEarly) }

func searchReportsThatEndEarly(t *testing.T, f *fleet) {
	r := f.reporter(t)
	resources, edges := r.shop()
	r.has(t, resources, edges...)
	half := `{"addResources":[{"kind":"Widget","uid":"` + r.name + `/half","properties":{"kind":"Widget","name":"half"}},`
	killed := r.slowReport(t, true, half)
	if err := killed.body.CloseWithError(errors.New("the agent is killed")); err != nil {
		t.Fatal(err)
	}
	if err := <-killed.answered; err == nil {
		t.Error("half a report is taken")
	}
	// The cluster is free again for a report when the server has noticed.
	r.changes(t, inventory.Sync{AddResources: []inventory.Resource{r.resource("ConfigMap", "default", "after", nil)}})
	finds(t, f.OCM, "kind:ConfigMap,Widget cluster:"+r.name, "configmap.default.settings", "configmap.default.after")
}
