package fence

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

type answering int

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	*a++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestFence checks which requests reach the managed cluster, and how often the epoch is read.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := rehoming.Epoch{}, rehoming.Epoch{Number: 1, Hub: "b"}
		stored, reads := first, 0
		var failing error
		f := New(func(context.Context) (rehoming.Epoch, error) {
			reads++
			return stored, failing
		})
		var sent answering
		transport := f.Transport(&sent)
		try := func(method string) error {
			t.Helper()
			before := sent
			request, err := http.NewRequestWithContext(t.Context(), method, "https://managed/api", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if reached := sent > before; reached != (err == nil) {
				t.Errorf("%s reached the cluster = %t with error %v, want one of both", method, reached, err)
			}
			return err
		}
		writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
		for _, method := range writes {
			if err := try(method); !errors.Is(err, ErrClosed) {
				t.Errorf("%s before Open() = %v, want %v", method, err, ErrClosed)
			}
		}
		if err := try(http.MethodGet); err != nil {
			t.Errorf("GET before Open() = %v, want no error", err)
		}
		f.Open(first)
		for _, method := range writes {
			if err := try(method); err != nil {
				t.Errorf("%s = %v, want no error", method, err)
			}
		}
		if reads != 1 {
			t.Errorf("reads of the epoch for four writes = %d, want 1", reads)
		}
		// A read for one hub does not allow writes for the next one.
		f.Open(second)
		var other *OtherHubError
		if err := try(http.MethodPost); !errors.As(err, &other) || other.Stored != first {
			t.Errorf("POST for a hub that has not raised the epoch = %v, want a refusal", err)
		}
		f.Open(first)
		// Another process raises the epoch. All others notice before it writes.
		stored = second
		time.Sleep(Wait)
		if err := try(http.MethodPost); !errors.As(err, &other) || other.Stored != second {
			t.Errorf("POST after another process has raised the epoch = %v, want a refusal", err)
		}
		f.Open(second)
		if err := try(http.MethodPost); err != nil {
			t.Errorf("POST for the new hub = %v, want no error", err)
		}
		time.Sleep(Validity)
		if failing = errors.New("no answer"); !errors.Is(try(http.MethodPost), failing) {
			t.Error("POST while the epoch cannot be read = no error, want the cause")
		}
		f.Close()
		if err := try(http.MethodPost); !errors.Is(err, ErrClosed) {
			t.Errorf("POST after Close() = %v, want %v", err, ErrClosed)
		}
	})
}
