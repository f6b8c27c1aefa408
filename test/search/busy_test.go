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

// slowReport is a report whose body the test writes in parts.
type slowReport struct {
	body *io.PipeWriter
	// answered receives one error, nil if the report is accepted.
	answered chan error
}

// slowReport starts a report and sends the head of its body. The request is cancelled at the end of the test.
func (r *reporter) slowReport(t *testing.T, full bool, head string) *slowReport {
	t.Helper()
	body, pipe := io.Pipe()
	s := &slowReport{body: pipe, answered: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		// Without this, a write to a body that is no longer read would block.
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

// TestSearchReportsOneAtATime checks that, during a report, the server rejects other reports of the same cluster with
// 429, accepts reports of other clusters, and returns no resource of the unfinished report.
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
	framework.Eventually(t, "a second report is rejected", func(ctx context.Context) error {
		select {
		case err := <-slow.answered:
			// The report of a previous attempt was in progress, so the slow report was rejected. Start a new slow
			// report before the next attempt.
			isRefused(t, err, http.StatusTooManyRequests)
			slow = r.slowReport(t, false, head)
			return errors.New("the other report was accepted first")
		default:
		}
		if refused = again(ctx); refused == nil {
			// This report may have caused the rejection of the slow report. The server answers only after it has read
			// the whole body, so end the body first.
			_ = slow.body.CloseWithError(io.ErrClosedPipe)
			select {
			case <-slow.answered:
			case <-ctx.Done():
				return ctx.Err()
			}
			slow = r.slowReport(t, false, head)
			return errors.New("the report is accepted")
		}
		return nil
	})
	status := isRefused(t, refused, http.StatusTooManyRequests)
	if seconds, asked := apierrors.SuggestsClientDelay(refused); !asked || seconds < 1 || !strings.Contains(status.Message, "another report") {
		t.Errorf("Status = %+v, want Retry-After and a message about another report", status)
	}
	framework.Must(other.sync(t.Context(), inventory.Sync{AddResources: []inventory.Resource{other.resource("Widget", "", "quick", nil)}}))(t)
	finds(t, f.OCM, "kind:Widget cluster:"+r.name+","+other.name, "widget.quick")
	if result := searched(t, f.OCM, "kind:Pod cluster:"+r.name); result.Count != 4 {
		t.Errorf("count of Pods during the report = %d, want 4", result.Count)
	}
	if _, err := io.WriteString(slow.body, tail); err != nil {
		t.Fatal(err)
	}
	if err := slow.body.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-slow.answered; err != nil {
		t.Fatalf("slow report: %v", err)
	}
	finds(t, f.OCM, "kind:Widget cluster:"+r.name, "slow")
	framework.Eventually(t, "the next report is accepted", again)
}

// TestSearchReportsThatEndEarly checks that an incomplete report changes nothing.
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
		t.Error("incomplete report succeeded, want an error")
	}
	// The server accepts the next report once it has detected the end of the incomplete one.
	r.changes(t, inventory.Sync{AddResources: []inventory.Resource{r.resource("ConfigMap", "default", "after", nil)}})
	finds(t, f.OCM, "kind:ConfigMap,Widget cluster:"+r.name, "configmap.default.settings", "configmap.default.after")
}
