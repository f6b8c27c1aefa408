// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.literal

// Package literal contains types whose values keep the form in which they were written. Kubernetes stores the canonical
// form, which kubectl apply and GitOps tools take for a change.
package literal
