package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// dropBootstrap deletes the Secret of the bootstrap kubeconfig until ctx ends, since the cluster has its own identity. It
// deletes it again if the cluster is joined again.
func (m *membership) dropBootstrap(ctx context.Context) {
	var logged complaint
	for {
		err := m.deleteBootstrap(ctx)
		if ctx.Err() != nil {
			return
		}
		if logged.differs(err) {
			klog.FromContext(ctx).Error(err, "Failed to delete the Secret with the bootstrap kubeconfig", "secret", m.config.BootstrapSecret)
		}
		if !pause(ctx, wait.Jitter(movePeriod, 0.5), nil) {
			return
		}
	}
}

// deleteBootstrap deletes the Secret of the bootstrap kubeconfig. It keeps a Secret that is not the one in the file, and one
// with another address of the hub, to which the agent has yet to move.
func (r *Registrar) deleteBootstrap(ctx context.Context) error {
	if r.config.BootstrapSecret == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	mounted, err := os.ReadFile(r.config.BootstrapKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	secret, err := r.store.secrets.Get(ctx, r.config.BootstrapSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	known := r.store.last()
	if known == nil || !bytes.Equal(mounted, secret.Data[filepath.Base(r.config.BootstrapKubeconfig)]) {
		return nil
	}
	config, err := r.bootstrap.loadFile()
	if err != nil {
		return err
	}
	offered, err := endpointOf(config)
	if err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	if current, err := knownEndpoint(known); err != nil || !offered.equal(current) {
		return err
	}
	err = r.store.secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err == nil {
		klog.FromContext(ctx).Info("Deleted the Secret with the bootstrap kubeconfig: the cluster has its own identity", "secret", secret.Name)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
