package membership

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/agent/fence"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

const standbyKubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"h","user":"u"}}],
"clusters":[{"name":"h","cluster":{"server":"https://standby"}}],"users":[{"name":"u","user":{"token":"t"}}]}`

// TestStandbyKubeconfig checks that a kubeconfig that comes over the hub cannot make the agent read files or run programs.
func TestStandbyKubeconfig(t *testing.T) {
	if _, err := loadStandby([]byte(standbyKubeconfig)); err != nil {
		t.Errorf("loadStandby() = %v, want no error", err)
	}
	for _, replaced := range []struct{ old, new, why string }{
		{`"token":"t"`, `"tokenFile":"/etc/passwd"`, "names a file or a program"},
		{`"token":"t"`, `"client-certificate":"/etc/passwd"`, "names a file or a program"},
		{`"token":"t"`, `"client-key":"/etc/passwd"`, "names a file or a program"},
		{`"token":"t"`, `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh","interactiveMode":"Never"}`, "names a file or a program"},
		{`"token":"t"`, `"auth-provider":{"name":"x"}`, "names a file or a program"},
		{`"server":"https://standby"`, `"server":"https://standby","certificate-authority":"/etc/passwd"`, "names a file"},
		{`"server":"https://standby"`, `"server":""`, "has no address"},
		{`"current-context":"c"`, `"current-context":"d"`, "does not exist"},
	} {
		text := strings.Replace(standbyKubeconfig, replaced.old, replaced.new, 1)
		if _, err := loadStandby([]byte(text)); err == nil || !strings.Contains(err.Error(), replaced.why) {
			t.Errorf("loadStandby(%s) = %v, want an error that contains %q", text, err, replaced.why)
		}
	}
}

// storedEpoch writes an epoch into the Secret, as another process does.
func storedEpoch(t *testing.T, r *Registrar, epoch string) {
	t.Helper()
	secrets := r.config.Managed.CoreV1().Secrets(r.config.Namespace)
	secret, err := secrets.Get(t.Context(), r.config.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data[keyHubEpoch] = []byte(epoch)
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestObeys checks which hubs an agent obeys, and what it records.
func TestObeys(t *testing.T) {
	for name, test := range map[string]struct {
		recorded, offered, other string
		// unprotected is true for a hub that does not keep others from writing the epoch.
		unprotected, obeys bool
		end                verdict
		want, note         string
	}{
		"never adopted":                     {obeys: true},
		"the same hub":                      {recorded: "1/a", offered: "1/a", obeys: true, want: "1/a"},
		"the first successor":               {offered: "1/a", obeys: true, want: "1/a"},
		"a later successor":                 {recorded: "1/a", offered: "3/b", obeys: true, want: "3/b"},
		"the former hub":                    {recorded: "1/a", want: "1/a", note: "another hub has replaced it"},
		"an earlier successor":              {recorded: "2/b", offered: "1/a", want: "2/b", note: "another hub has replaced it"},
		"another successor of the same hub": {recorded: "1/a", offered: "1/b", want: "1/a", note: "another hub has replaced it"},
		"a hub that is still importing":     {offered: "0/b", note: "another hub has replaced it"},
		"an invalid epoch":                  {recorded: "1/a", offered: "x", want: "1/a", note: "not an epoch"},
		"unprotected, the same epoch":       {unprotected: true, recorded: "1/a", offered: "1/a", obeys: true, want: "1/a"},
		"unprotected, never adopted":        {unprotected: true, obeys: true},
		"unprotected, a higher epoch":       {unprotected: true, recorded: "1/a", offered: "9007199254740991/evil", want: "1/a", note: "ignores a higher epoch"},
		"unprotected, no epoch":             {unprotected: true, recorded: "1/a", want: "1/a", note: "another hub has replaced it"},
		"another process was faster":        {offered: "1/a", other: "2/b", end: superseded, want: "2/b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistrar(t, Config{})
			known, err := r.store.write(t.Context(), func(i *identity) { i.set(keyHubEpoch, test.recorded) })
			if err != nil {
				t.Fatal(err)
			}
			if test.other != "" {
				storedEpoch(t, r, test.other)
			}
			m := &membership{Registrar: r, known: known, again: make(chan struct{}, 1)}
			cluster := managedCluster(func(c *clusterv1.ManagedCluster) {
				c.Annotations = map[string]string{rehoming.EpochAnnotation: test.offered}
				if !test.unprotected {
					c.Status.Acceptance = &clusterv1.Acceptance{Accepted: true}
				}
			})
			end, obeys := m.obeys(t.Context(), cluster)
			if end != test.end || obeys != test.obeys {
				t.Errorf("obeys() = %d, %t, want %d, %t", end, obeys, test.end, test.obeys)
			}
			if test.note != "" && !strings.Contains(r.Waiting(), test.note) {
				t.Errorf("Waiting() = %q, want %q", r.Waiting(), test.note)
			}
			stored, err := ReadEpoch(r.config.Managed.CoreV1(), r.config.Namespace, r.config.SecretName)(t.Context())
			if err != nil || stored.String() != test.want {
				t.Errorf("stored epoch = %q, %v, want %q", stored, err, test.want)
			}
		})
	}
}

// TestFormerHubDeletesNothing checks that a hub that another hub has replaced cannot make the agent remove the applied
// objects.
func TestFormerHubDeletesNothing(t *testing.T) {
	r := newRegistrar(t, Config{})
	known, err := r.store.write(t.Context(), func(i *identity) { i.set(keyHubEpoch, "1/a") })
	if err != nil {
		t.Fatal(err)
	}
	m := &membership{Registrar: r, known: known, again: make(chan struct{}, 1)}
	for _, seen := range []sight[*clusterv1.ManagedCluster]{
		{object: managedCluster(nil), deleted: true},
		{object: managedCluster(func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = new(metav1.Now()) })},
		{object: managedCluster(func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true })},
	} {
		if end := m.see(t.Context(), seen); end != stopped || m.mode != idle || m.known.deleted != nil {
			t.Errorf("see(%+v) of the former hub = %d in mode %d, want the agent idle", seen, end, m.mode)
		}
	}
}

// TestMoveTo checks what a cluster that has moved remembers: the other hub replaces the bootstrap kubeconfig until an
// administrator changes that.
func TestMoveTo(t *testing.T) {
	path := t.TempDir() + "/bootstrap"
	write := func(server string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Replace(standbyKubeconfig, "https://standby", server, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("https://former")
	r := newRegistrar(t, Config{BootstrapKubeconfig: path, Fence: fence.New(func(context.Context) (rehoming.Epoch, error) { return rehoming.Epoch{}, nil })})
	if _, err := r.store.write(t.Context(), func(i *identity) {
		for _, key := range []string{keyCertificate, keyPrivateKey, keyPendingKey} {
			i.data[key] = []byte("of the former hub")
		}
		i.set(keyHubHash, "hash")
	}); err != nil {
		t.Fatal(err)
	}
	end, err := r.moveTo(t.Context(), &standbyHub{kubeconfig: []byte(standbyKubeconfig), server: "https://standby", epoch: rehoming.Epoch{Number: 1, Hub: "a"}})
	if end != moved || err != nil {
		t.Fatalf("moveTo() = %v, %v, want moved", end, err)
	}
	secret, err := r.config.Managed.CoreV1().Secrets(r.config.Namespace).Get(t.Context(), r.config.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(secret.Data[keyHubEpoch]) != "1/a" || string(secret.Data[keyHubHash]) != "hash" || hasAny(secret, keyCertificate, keyPrivateKey, keyPendingKey) {
		t.Errorf("Secret = %q, want the epoch and the hash, and no credentials of the former hub", secret.Data)
	}
	for server, want := range map[string]string{"https://former": "https://standby", "https://third": "https://third"} {
		write(server)
		if got, err := r.bootstrap.endpoint(); err != nil || got.server != want {
			t.Errorf("endpoint() with %s in the bootstrap kubeconfig = %+v, %v, want %s", server, got, err, want)
		}
	}
}

// TestMoveToSlowHub checks that a standby hub whose answer came too late does not lower the recorded epoch.
func TestMoveToSlowHub(t *testing.T) {
	for _, recorded := range []string{"2/b", "1/b"} {
		r := newRegistrar(t, Config{})
		if _, err := r.store.write(t.Context(), func(i *identity) { i.set(keyHubEpoch, recorded) }); err != nil {
			t.Fatal(err)
		}
		end, err := r.moveTo(t.Context(), &standbyHub{kubeconfig: []byte(standbyKubeconfig), server: "https://standby", epoch: rehoming.Epoch{Number: 1, Hub: "a"}})
		if end != superseded || err != nil {
			t.Fatalf("moveTo() to epoch 1/a after epoch %s = %v, %v, want superseded", recorded, end, err)
		}
		secret, err := r.config.Managed.CoreV1().Secrets(r.config.Namespace).Get(t.Context(), r.config.SecretName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if string(secret.Data[keyHubEpoch]) != recorded || hasAny(secret, keyStandbyKubeconfig) {
			t.Errorf("Secret after moveTo() to epoch 1/a = %q, want it unchanged with epoch %s", secret.Data, recorded)
		}
	}
}

// TestOwnStandby checks that a cluster that has moved keeps the newest token for its hub, and does not ask the hub whether it
// replaces itself.
func TestOwnStandby(t *testing.T) {
	newer := strings.Replace(standbyKubeconfig, `"token":"t"`, `"token":"newer"`, 1)
	r := newRegistrar(t, Config{})
	if _, err := r.store.write(t.Context(), func(i *identity) {
		i.data[keyKubeconfig], i.data[keyStandbyKubeconfig] = []byte(standbyKubeconfig), []byte(standbyKubeconfig)
	}); err != nil {
		t.Fatal(err)
	}
	secrets := r.config.Managed.CoreV1().Secrets(r.config.Namespace)
	if _, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: StandbySecret}, Data: map[string][]byte{keyKubeconfig: []byte(newer)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if found, err := r.askStandby(t.Context()); found != nil || err != nil {
		t.Errorf("askStandby() about the own hub = %+v, %v, want no standby hub", found, err)
	}
	if got := string(r.store.last().data[keyStandbyKubeconfig]); got != newer {
		t.Errorf("bootstrap kubeconfig = %s, want the newer one", got)
	}
}

func hasAny(secret *corev1.Secret, keys ...string) bool {
	for _, key := range keys {
		if _, found := secret.Data[key]; found {
			return true
		}
	}
	return false
}

// TestStandbyIsAsked checks that an agent asks its standby hub every 30 to 45 seconds, and at once and every 2 to 15 seconds while
// its hub does not respond.
func TestStandbyIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistrar(t, Config{})
		var client *fake.Clientset
		r.store, client = newStore()
		var mu sync.Mutex
		var asked []time.Time
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Now())
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.followStandby(ctx) })
		time.Sleep(10 * time.Second)
		during := func(least, most time.Duration) {
			t.Helper()
			mu.Lock()
			asked = asked[len(asked)-1:]
			mu.Unlock()
			time.Sleep(time.Hour)
			mu.Lock()
			defer mu.Unlock()
			for i := 1; i < len(asked); i++ {
				if after := asked[i].Sub(asked[i-1]); after < least || after > most {
					t.Errorf("the standby hub was asked again after %s, want %s to %s", after, least, most)
				}
			}
			if len(asked) < int(time.Hour/most) {
				t.Errorf("the standby hub was asked %d times in an hour, want every %s to %s", len(asked), least, most)
			}
		}
		during(30*time.Second, 45*time.Second)
		r.lost.Store(true)
		lost := time.Now()
		reconcile.Signal(r.lostNow)
		synctest.Wait()
		if last := asked[len(asked)-1]; !last.Equal(lost) {
			t.Errorf("the standby hub was asked last %s before the hub was lost, want at once", lost.Sub(last))
		}
		during(2*time.Second, 15*time.Second)
		cancel()
		running.Wait()
	})
}
