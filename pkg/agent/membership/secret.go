package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// Keys of the Secret. The first five are also used by upstream OCM agents.
const (
	keyKubeconfig  = "kubeconfig"
	keyClusterName = "cluster-name"
	keyAgentName   = "agent-name"
	keyCertificate = "tls.crt"
	keyPrivateKey  = "tls.key"
	// keyHubHash identifies the hub in AppliedManifestWorks.
	keyHubHash = "hub-hash"
	// keyPendingKey is the private key of a requested certificate. With it, a restarted agent
	// continues with its request.
	keyPendingKey = "pending-tls.key"
)

// deletedAnnotation contains the UID of the ManagedCluster that the hub has deleted. With it, a
// restarted agent continues to remove the applied objects.
const deletedAnnotation = "agent.open-cluster-management.io/deleted-on-hub"

// foreignError is the error of a Secret of another cluster.
type foreignError struct{ message string }

func (e *foreignError) Error() string { return e.message }

type identity struct {
	data map[string][]byte
	// deleted is the UID of the ManagedCluster that the hub has deleted. Otherwise it is nil.
	deleted *types.UID
}

func (i *identity) get(key string) string { return string(i.data[key]) }

func (i *identity) set(key, value string) {
	if value == "" {
		delete(i.data, key)
		return
	}
	i.data[key] = []byte(value)
}

func (i *identity) clone() *identity {
	return &identity{data: maps.Clone(i.data), deleted: i.deleted}
}

// store keeps the identity in the Secret, and its files.
type store struct {
	secrets     corev1client.SecretInterface
	name        string
	clusterName string
	// held is the last known content of the Secret. It is nil until the Secret has been read.
	held atomic.Pointer[identity]
}

// read returns the identity in the Secret. The identity is empty if the Secret does not exist.
func (s *store) read(ctx context.Context) (*identity, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.held.Store(nil)
		return &identity{data: map[string][]byte{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("identity in Secret %s: %w", s.name, err)
	}
	if err := s.check(secret); err != nil {
		return nil, err
	}
	known := identityOf(secret)
	s.held.Store(known)
	return known.clone(), nil
}

func identityOf(secret *corev1.Secret) *identity {
	known := &identity{data: maps.Clone(secret.Data)}
	if known.data == nil {
		known.data = map[string][]byte{}
	}
	if uid, ok := secret.Annotations[deletedAnnotation]; ok {
		known.deleted = (*types.UID)(&uid)
	}
	return known
}

func (s *store) check(secret *corev1.Secret) error {
	if name := string(secret.Data[keyClusterName]); name != "" && name != s.clusterName {
		return &foreignError{fmt.Sprintf("Secret %s/%s holds the identity of cluster %q, not of %q. Start the agent with --cluster-name=%s, "+
			"use another Secret by --hub-kubeconfig-secret, or delete the Secret to register again", secret.Namespace, secret.Name, name, s.clusterName, name)}
	}
	return nil
}

// write changes the Secret, and creates it if it does not exist. It returns errRaised if the Secret records a higher
// epoch than the last known content.
func (s *store) write(ctx context.Context, change func(*identity)) (*identity, error) {
	var known *identity
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			secret, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Type: corev1.SecretTypeOpaque}, nil
			if held := s.last(); held != nil {
				// Restore the content of a deleted Secret.
				held.into(secret)
			}
		}
		if err != nil {
			return err
		}
		if err := s.check(secret); err != nil {
			return err
		}
		before := secret.DeepCopy()
		known = identityOf(secret)
		if raised(known, s.last()) {
			return errRaised
		}
		change(known)
		known.set(keyClusterName, s.clusterName)
		known.into(secret)
		switch {
		case missing:
			_, err = s.secrets.Create(ctx, secret, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				err = apierrors.NewConflict(corev1.Resource("secrets"), s.name, err)
			}
		case !same(before, secret):
			_, err = s.secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("identity in Secret %s: %w", s.name, err)
	}
	s.held.Store(known)
	return known.clone(), nil
}

func same(a, b *corev1.Secret) bool {
	return maps.EqualFunc(a.Data, b.Data, bytes.Equal) && maps.Equal(a.Annotations, b.Annotations)
}

// last returns the last known content of the Secret, or nil.
func (s *store) last() *identity {
	if held := s.held.Load(); held != nil {
		return held.clone()
	}
	return nil
}

func (i *identity) into(secret *corev1.Secret) {
	secret.Data = maps.Clone(i.data)
	if i.deleted == nil {
		delete(secret.Annotations, deletedAnnotation)
		return
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[deletedAnnotation] = string(*i.deleted)
}

// setDeleted sets or removes the annotation that the hub has deleted the cluster. It does not
// create the Secret.
func (s *store) setDeleted(ctx context.Context, uid *types.UID) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{deletedAnnotation: uid}}})
	if err != nil {
		return err
	}
	secret, err := s.secrets.Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("identity in Secret %s: %w", s.name, err)
	}
	s.held.Store(identityOf(secret))
	return nil
}

func (s *store) restore(ctx context.Context) error {
	if s.last() == nil {
		return nil
	}
	if _, err := s.write(ctx, func(*identity) {}); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored the deleted Secret with the identity of the cluster", "secret", s.name)
	return nil
}

func (s *store) followSecret() *followed[*corev1.Secret] {
	return &followed[*corev1.Secret]{
		name: s.name,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return s.secrets.List(ctx, options)
		},
		watch: s.secrets.Watch,
	}
}

// fileKeys are the keys of the Secret that are also files. The kubeconfig is the last key, because
// it refers to the other files.
var fileKeys = []string{keyClusterName, keyAgentName, keyPrivateKey, keyCertificate, keyKubeconfig}

// mirror writes the identity to a directory that only the current user can read.
func mirror(dir string, known *identity) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = private(dir)
	}
	for _, key := range fileKeys {
		value, ok := known.data[key]
		switch path := filepath.Join(dir, key); {
		case err != nil:
		case ok:
			err = replaceFile(path, value)
		default:
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("--hub-kubeconfig-dir: %w", err)
	}
	return nil
}

// private keeps others from reading a directory, which may have existed with another mode.
func private(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == 0o700 {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("must be the agent's own directory: %w", err)
	}
	return nil
}

func replaceFile(path string, content []byte) (err error) {
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, content) {
		return os.Chmod(path, 0o600)
	}
	// CreateTemp sets mode 0600.
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
