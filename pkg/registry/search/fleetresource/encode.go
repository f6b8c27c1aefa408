package fleetresource

import (
	"io"

	"k8s.io/apimachinery/pkg/runtime"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
)

// eventObject is the FleetResource of a watch event.
type eventObject struct {
	*searchv1alpha1.FleetResource
	// done is called when the event is written, or not at all if the watch ends before.
	done func()
}

var _ runtime.CacheableObject = &eventObject{}

// DeepCopyObject implements runtime.Object.
func (o *eventObject) DeepCopyObject() runtime.Object {
	return &eventObject{FleetResource: o.DeepCopy(), done: func() {}}
}

// GetObject implements runtime.CacheableObject.
func (o *eventObject) GetObject() runtime.Object { return o.FleetResource }

// CacheEncode implements runtime.CacheableObject.
func (o *eventObject) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, to io.Writer) error {
	defer o.done()
	err := encode(o.FleetResource, to)
	// A client that does not read keeps the encoded event in memory. Each event is encoded once.
	o.FleetResource = &searchv1alpha1.FleetResource{}
	return err
}
