package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAPatience        = 10 * time.Second
	clientCAPeriod          = 10 * time.Millisecond
)

// loadedCA holds the server back from its first handshake until it knows the
// authorities of client certificates, which it gets from a ConfigMap of the hub.
// A handshake before that asks for no certificate, and whoever made it, the
// hub's aggregator among them, would be anonymous for as long as the connection lasts.
type loadedCA struct {
	dynamiccertificates.CAContentProvider
	hub kubernetes.Interface
}

// RunOnce implements dynamiccertificates.ControllerRunner; the server calls it
// before its first handshake, and Run right after.
func (c *loadedCA) RunOnce(ctx context.Context) error {
	runner, ok := c.CAContentProvider.(dynamiccertificates.ControllerRunner)
	if !ok {
		return nil
	}
	go runner.Run(ctx, 1)

	var last error
	err := wait.PollUntilContextTimeout(ctx, clientCAPeriod, clientCAPatience, true, func(ctx context.Context) (bool, error) {
		last = c.loaded(ctx)
		return last == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		// Rather late than never: tokens need no authority of certificates.
		klog.FromContext(ctx).Error(last, "serving before the authorities of client certificates are known")
	}
	return nil
}

// Run implements dynamiccertificates.ControllerRunner. RunOnce has begun what it would do.
func (c *loadedCA) Run(ctx context.Context, _ int) { <-ctx.Done() }

// loaded tells what of the hub's authorities is not known yet.
func (c *loadedCA) loaded(ctx context.Context) error {
	config, err := c.hub.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return err
	}
	known := c.CurrentCABundleContent()
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		if !bytes.Contains(known, bytes.TrimSpace([]byte(config.Data[key]))) {
			return fmt.Errorf("%s of ConfigMap %s/%s is not known yet", key, metav1.NamespaceSystem, authenticationConfigMap)
		}
	}
	return nil
}
