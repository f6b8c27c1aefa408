package membership

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfigOf returns a kubeconfig for a hub.
func kubeconfigOf(t *testing.T, server, token string) []byte {
	t.Helper()
	content, err := (&endpoint{server: server}).kubeconfig(&clientcmdapi.AuthInfo{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestBootstrapSecretIsDeleted checks which Secrets an agent deletes when the hub accepts the cluster: only the one of its
// bootstrap kubeconfig, and only if that is for the hub that it has joined.
func TestBootstrapSecretIsDeleted(t *testing.T) {
	const hub, other = "https://hub", "https://other"
	mounted := kubeconfigOf(t, hub, "t")
	for name, test := range map[string]struct {
		named        string
		file, secret []byte
		joined       string
		deleted      bool
	}{
		"mounted":                          {"boot", mounted, mounted, hub, true},
		"not named":                        {"", mounted, mounted, hub, false},
		"another Secret is named":          {"else", mounted, mounted, hub, false},
		"not mounted":                      {"boot", nil, mounted, hub, false},
		"replaced since the mount":         {"boot", mounted, kubeconfigOf(t, hub, "new"), hub, false},
		"a plain file":                     {"boot", kubeconfigOf(t, hub, "plain"), mounted, hub, false},
		"of an address to move to":         {"boot", mounted, mounted, other, false},
		"of the hub of before the standby": {"boot", mounted, mounted, "https://standby", false},
		"not a kubeconfig":                 {"boot", []byte("{"), []byte("{"), hub, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			r := newRegistrar(t, Config{BootstrapKubeconfig: file, BootstrapSecret: test.named})
			if _, err := r.store.write(t.Context(), func(i *identity) {
				i.data[keyKubeconfig] = kubeconfigOf(t, test.joined, "own")
				if test.joined == "https://standby" {
					i.data[keyStandbyKubeconfig] = []byte(standbyKubeconfig)
					i.set(keyStandbyFor, hub)
				}
			}); err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"boot", StandbySecret} {
				if _, err := r.store.secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}, Data: map[string][]byte{"kubeconfig": test.secret}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if test.file != nil {
				if err := os.WriteFile(file, test.file, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the first call may cache the Secret
				if err := r.deleteBootstrap(t.Context()); (err != nil) != (name == "not a kubeconfig") {
					t.Errorf("deleteBootstrap() = %v, want an error only for an invalid kubeconfig", err)
				}
			}
			if _, err := r.store.secrets.Get(t.Context(), "boot", metav1.GetOptions{}); apierrors.IsNotFound(err) != test.deleted {
				t.Errorf("get of the Secret = %v, want it deleted = %t", err, test.deleted)
			}
			for _, kept := range []string{StandbySecret, r.config.SecretName} {
				if _, err := r.store.secrets.Get(t.Context(), kept, metav1.GetOptions{}); err != nil {
					t.Errorf("get of Secret %s = %v, want nil", kept, err)
				}
			}
		})
	}
}

// TestStandbyOutlivesTheBootstrapSecret checks that an agent that has moved to a standby hub still finds it when the file of
// its first hub disappears with its Secret, and that it follows a file for yet another hub.
func TestStandbyOutlivesTheBootstrapSecret(t *testing.T) {
	for name, test := range map[string]struct {
		recorded, file, want string
	}{
		"the file of the first hub":                       {"https://hub", "https://hub", "https://standby"},
		"the file disappears after the move":              {"https://hub", "", "https://standby"},
		"the file disappears before the move":             {"", "", "https://standby"},
		"joined to another hub":                           {"https://hub", "https://third", "https://third"},
		"joined to another hub, where no file was before": {"", "https://third", "https://third"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if test.file != "" {
				if err := os.WriteFile(file, kubeconfigOf(t, test.file, "t"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			known := &identity{data: map[string][]byte{keyStandbyKubeconfig: []byte(standbyKubeconfig)}}
			known.set(keyStandbyFor, test.recorded)
			got, err := (&bootstrap{file: file, known: func() *identity { return known }}).endpoint()
			if err != nil || got.server != test.want {
				t.Errorf("endpoint() = %+v, %v, want %s", got, err, test.want)
			}
		})
	}
}
