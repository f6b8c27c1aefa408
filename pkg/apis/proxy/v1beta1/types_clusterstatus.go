package v1beta1

import (
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

func init() {
	localSchemeBuilder.Register(func(scheme *runtime.Scheme) error {
		return scheme.AddConversionFunc((*url.Values)(nil), (*ClusterStatusProxyOptions)(nil), func(in, out any, _ conversion.Scope) error {
			out.(*ClusterStatusProxyOptions).Path = in.(*url.Values).Get("path")
			return nil
		})
	})
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterStatus accepts reports of a managed cluster. It has no content. Upstream search collectors send their
// reports to its subresource aggregator.
type ClusterStatus struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterStatusProxyOptions are the options of a request to a subresource of a ClusterStatus.
type ClusterStatusProxyOptions struct {
	metav1.TypeMeta `json:",inline"`

	// path is the part of the URL after the subresource.
	// +optional
	Path string `json:"path,omitempty"`
}
