package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Console is a file of the console, the page that shows the fleet in a browser. It has no content as an object: the
// response to a get is the file.
type Console struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name is the name of the file.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
}
