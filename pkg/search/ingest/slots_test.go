package ingest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// upload is a report whose body is sent in several parts.
type upload struct {
	body *io.PipeWriter
	// reading is closed when the server reads the body. At that time, the report has a slot.
	reading chan struct{}
	done    chan struct{}
	answer  answer
	err     error
}

// upload starts a report. The test must finish it.
func (s *server) upload(t testing.TB, cluster string) *upload {
	t.Helper()
	reader, writer := io.Pipe()
	u := &upload{body: writer, reading: make(chan struct{}), done: make(chan struct{})}
	r := s.request(t, http.MethodPost, cluster, reader, "Expect", "100-continue")
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(u.reading) }}))
	go func() {
		defer close(u.done)
		u.answer, u.err = s.try(r)
		// A server that stops reading must not block the sender.
		reader.CloseWithError(io.ErrClosedPipe)
	}()
	t.Cleanup(func() {
		writer.CloseWithError(io.ErrUnexpectedEOF)
		await.Done(t, "a report ends", u.done)
	})
	return u
}

// send sends a part of the body.
func (u *upload) send(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(u.body, text); err != nil {
		t.Fatal(err)
	}
}

// finish sends the rest of the body and returns the response.
func (u *upload) finish(t testing.TB, text string) answer {
	t.Helper()
	u.send(t, text)
	if err := u.body.Close(); err != nil {
		t.Fatal(err)
	}
	await.Done(t, "the server answers", u.done)
	if u.err != nil {
		t.Fatal(u.err)
	}
	return u.answer
}

// serveUploads is like serve, with a client that waits for a slot before it sends the body.
func serveUploads(t testing.TB, config Config) *server {
	t.Helper()
	s := serve(t, config)
	s.Client().Transport.(*http.Transport).ExpectContinueTimeout = 2 * await.Patience
	return s
}

func refusedForNow(t *testing.T, a answer, why string) {
	t.Helper()
	if status := a.status(t); a.code != http.StatusTooManyRequests || status.Message != why {
		t.Errorf("response = %d %q, want 429 %q", a.code, status.Message, why)
	}
	retriesLater(t, a)
}

func TestOneReportOfAClusterAtATime(t *testing.T) {
	s := serveUploads(t, Config{})
	first := s.upload(t, "c1")
	await.Done(t, "the first report is read", first.reading)
	refusedForNow(t, s.post(t, "c1", full("c1", "b")), "another report of this cluster is in progress")
	if resources, _ := s.post(t, "c2", full("c2", "a")).totals(t); resources != 1 {
		t.Errorf("resources of another cluster = %d, want 1", resources)
	}
	if resources, _ := first.finish(t, full("c1", "a", "b")).totals(t); resources != 2 {
		t.Errorf("resources after the first report = %d, want 2", resources)
	}
	if resources, _ := s.post(t, "c1", full("c1", "b")).totals(t); resources != 1 {
		t.Errorf("resources after the next report = %d, want 1", resources)
	}
}

func TestThirtyClustersAtOnce(t *testing.T) {
	s := serveUploads(t, Config{})
	var taken []*upload
	for i := range 25 {
		u := s.upload(t, fmt.Sprintf("c%d", i+1))
		await.Done(t, "a report is read", u.reading)
		taken = append(taken, u)
	}
	for i := 25; i < 30; i++ {
		cluster := fmt.Sprintf("c%d", i+1)
		refusedForNow(t, s.post(t, cluster, full(cluster, "a")), "too many reports are in progress")
	}
	if resources, _ := s.post(t, hubCluster, full(hubCluster, "a")).totals(t); resources != 1 {
		t.Errorf("resources of the hub = %d, want 1", resources)
	}
	for i, u := range taken {
		if resources, _ := u.finish(t, full(fmt.Sprintf("c%d", i+1), "a")).totals(t); resources != 1 {
			t.Errorf("resources of c%d = %d, want 1", i+1, resources)
		}
	}
	for i := 25; i < 30; i++ {
		cluster := fmt.Sprintf("c%d", i+1)
		if resources, _ := s.post(t, cluster, full(cluster, "a")).totals(t); resources != 1 {
			t.Errorf("resources of %s = %d, want 1", cluster, resources)
		}
	}
}

func TestLargeReports(t *testing.T) {
	const why = "too many large reports are in progress"
	s := serveUploads(t, Config{LargeReports: 1, LargeBytes: 1000})
	large := full("c2", "a") + strings.Repeat(" ", 1000)
	first := s.upload(t, "c1")
	await.Done(t, "the first report is read", first.reading)
	// The report is not large yet.
	s.post(t, "c2", large).totals(t)
	// Send more data than a client buffers.
	first.send(t, strings.Repeat(" ", 100_000))
	// Wait until the server has read the data. Before that, another request could take the only
	// slot.
	await.True(t, "the first report becomes large and takes the slot", func() bool {
		s.handler.slots.lock.Lock()
		defer s.handler.slots.lock.Unlock()
		return s.handler.slots.large == 1
	})
	refusedForNow(t, s.post(t, "c2", large), why)
	refusedForNow(t, s.do(t, s.request(t, http.MethodPost, "c2", stream(strings.NewReader(large)))), why)
	refusedForNow(t, s.do(t, s.request(t, http.MethodPost, "c2", zipped(t, strings.NewReader(large)), "Content-Encoding", "gzip")), why)
	s.post(t, "c2", full("c2", "a", "b")).totals(t)
	first.finish(t, full("c1", "a")).totals(t)
	s.post(t, "c2", large).totals(t)
}

// TestSlowSender checks that a stalled sender loses its slot.
func TestSlowSender(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1.1": (*httptest.Server).Start,
		"HTTP/2": func(s *httptest.Server) {
			s.EnableHTTP2 = true
			s.StartTLS()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveBy(t, Config{Timeout: time.Second, Reports: 1}, start)
			s.Client().Transport.(*http.Transport).ExpectContinueTimeout = 2 * await.Patience
			slow := s.upload(t, "c1")
			await.Done(t, "the report is read", slow.reading)
			slow.send(t, `{"addResources":[`)
			await.Done(t, "the server gives up", slow.done)
			if slow.err != nil {
				t.Fatal(slow.err)
			}
			if status := slow.answer.status(t); slow.answer.code != http.StatusRequestTimeout || status.Reason != metav1.StatusReasonTimeout {
				t.Errorf("response = %d %q, want 408 with reason Timeout", slow.answer.code, status.Message)
			}
			retriesLater(t, slow.answer)
			// A slow test machine may cause further timeouts.
			deadline := time.Now().Add(await.Patience)
			next := s.post(t, "c1", full("c1", "a"))
			for next.code == http.StatusRequestTimeout && time.Now().Before(deadline) {
				next = s.post(t, "c1", full("c1", "a"))
			}
			if resources, _ := next.totals(t); resources != 1 {
				t.Errorf("resources = %d, want 1", resources)
			}
		})
	}
}

// TestDeadlineOfTheServer checks a request that has its own deadline.
func TestDeadlineOfTheServer(t *testing.T) {
	s := serveBy(t, Config{}, func(s *httptest.Server) {
		inner := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			inner.ServeHTTP(w, r.WithContext(ctx))
		})
		s.Start()
	})
	reader, writer := io.Pipe()
	defer writer.Close()
	if got := s.do(t, s.request(t, http.MethodPost, "c1", reader)); got.code != http.StatusRequestTimeout {
		t.Errorf("response = %d, want 408", got.code)
	}
}

// TestBrokenConnection checks that a disconnected sender leaves no data and no slot behind.
func TestBrokenConnection(t *testing.T) {
	s := serveUploads(t, Config{Reports: 1})
	gone := s.upload(t, "c1")
	await.Done(t, "the report is read", gone.reading)
	gone.send(t, strings.TrimSuffix(full("c1", "a"), "]}"))
	gone.body.CloseWithError(io.ErrUnexpectedEOF)
	await.Done(t, "the connection breaks", gone.done)
	deadline := time.Now().Add(await.Patience)
	next := s.post(t, "c1", `{}`)
	for next.code == http.StatusTooManyRequests && time.Now().Before(deadline) {
		next = s.post(t, "c1", `{}`)
	}
	if resources, _ := next.totals(t); resources != 0 {
		t.Errorf("stored resources of an incomplete report = %d, want 0", resources)
	}
}
