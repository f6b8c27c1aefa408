package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
)

// TestPublishedAuthority checks that the hub is authenticated as soon as it publishes a new authority, although the
// authority is not loaded, and that nobody else is.
func TestPublishedAuthority(t *testing.T) {
	old, replaced := newAuthority(t, "old"), newAuthority(t, "new")
	expires := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		// from is the number of the read from which the hub publishes the new authority. 0 means never.
		from int32
		with *x509.Certificate
		// header is the user whom the request names.
		header  string
		waiting int
		user    string
		read    bool
	}{
		"published before the request":  {from: 1, with: replaced.client(t, "front-proxy", expires), header: "alice", user: "alice", read: true},
		"published during the request":  {from: 3, with: replaced.client(t, "front-proxy", expires), header: "alice", user: "alice", read: true},
		"never published":               {with: replaced.client(t, "front-proxy", expires), header: "alice", user: user.Anonymous, read: true},
		"a name that is not allowed":    {from: 1, with: replaced.client(t, "other", expires), header: "alice", user: user.Anonymous, read: true},
		"an expired certificate":        {from: 1, with: replaced.client(t, "front-proxy", time.Now().Add(-time.Minute)), header: "alice", user: user.Anonymous},
		"no user in the headers":        {from: 1, with: replaced.client(t, "front-proxy", expires), user: user.Anonymous},
		"more requests than may wait":   {from: 1, with: replaced.client(t, "front-proxy", expires), header: "alice", waiting: authorityWaiters, user: user.Anonymous},
		"a client of the cluster":       {from: 1, with: replaced.client(t, clientName, expires), header: "alice", user: clientName},
		"the authority that was loaded": {with: old.client(t, "front-proxy", expires), header: "alice", user: "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded := &authorities{}
			loaded.publish(t, old)
			hub := fake.NewClientset()
			var reads atomic.Int32
			hub.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				authority := old
				if read := reads.Add(1); test.from > 0 && read >= test.from {
					authority = replaced
				}
				content, err := certutil.EncodeCertificates(authority.certificate)
				return true, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: authenticationConfigMap},
					Data:       map[string]string{"requestheader-client-ca-file": string(content)},
				}, err
			})
			proxy := newTestProxy(loaded, headerrequest.StaticStringSlice{"front-proxy"}, hub)
			if test.user == user.Anonymous {
				proxy.published.patience = 2 * authorityPeriod
			}
			for range test.waiting {
				proxy.published.waiters <- struct{}{}
			}
			request := (&http.Request{Header: http.Header{}, TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{test.with}}}).WithContext(t.Context())
			if test.header != "" {
				request.Header.Set("X-Remote-User", test.header)
			}
			response, ok, err := proxy.AuthenticateRequest(request)
			if err != nil || !ok {
				t.Fatalf("AuthenticateRequest() = %t, %v, want a user", ok, err)
			}
			if response.User.GetName() != test.user {
				t.Errorf("AuthenticateRequest() = user %s, want %s", response.User.GetName(), test.user)
			}
			if (reads.Load() > 0) != test.read {
				t.Errorf("AuthenticateRequest() reads the ConfigMap = %t, want %t", reads.Load() > 0, test.read)
			}
			if len(proxy.published.waiters) != test.waiting {
				t.Errorf("%d requests wait afterwards, want %d", len(proxy.published.waiters), test.waiting)
			}
		})
	}
}
