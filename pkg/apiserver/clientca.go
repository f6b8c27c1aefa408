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

// loadedCA delays the first TLS handshake until the server has read the certificate authorities of clients
// from a ConfigMap of the hub. An earlier handshake would not request a certificate, and the client, such
// as the aggregator of the hub, would be anonymous for the lifetime of the connection.
type loadedCA struct {
	dynamiccertificates.CAContentProvider
	hub kubernetes.Interface
}

// RunOnce implements dynamiccertificates.ControllerRunner. The server calls it before the first handshake.
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
		// Clients with tokens do not need certificate authorities.
		klog.FromContext(ctx).Error(last, "Serving without the certificate authorities of clients")
	}
	return nil
}

// Run implements dynamiccertificates.ControllerRunner. RunOnce has already started the runner.
func (c *loadedCA) Run(ctx context.Context, _ int) { <-ctx.Done() }

// loaded returns an error if a certificate authority of the hub is not loaded yet.
func (c *loadedCA) loaded(ctx context.Context) error {
	config, err := c.hub.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return err
	}
	known := c.CurrentCABundleContent()
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		if !bytes.Contains(known, bytes.TrimSpace([]byte(config.Data[key]))) {
			return fmt.Errorf("%s of ConfigMap %s/%s is not loaded yet", key, metav1.NamespaceSystem, authenticationConfigMap)
		}
	}
	return nil
}
