package apiserver

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"open-cluster-management.io/hub-apiserver/pkg/servingcert"
)

// servingCertificate makes the server serve the certificate of a Secret, and returns the controller that
// keeps it. It returns nil if the server does not manage its certificate.
func (c CompletedConfig) servingCertificate(hub kubernetes.Interface, broadcaster events.EventBroadcaster) (*servingcert.Controller, error) {
	if c.extra.ServingCertificate == nil {
		return nil, nil
	}
	client, err := aggregator.NewForConfig(c.hub)
	if err != nil {
		return nil, fmt.Errorf("building the client of APIServices: %w", err)
	}
	controller := servingcert.New(*c.extra.ServingCertificate, hub, client, broadcaster.NewRecorder(kubernetesscheme.Scheme, serverName), c.generic.SecureServing.Cert)
	c.generic.SecureServing.Cert = controller.Content()
	return controller, nil
}
