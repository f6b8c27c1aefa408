// Package artifacts holds the manifests to install, as clusteradm applies them.
package artifacts

import "embed"

// FS has the manifests under the paths that they have in this directory.
//
//go:embed rbac/*.yaml rbac/aws-auth/*.yaml apiservice/*.yaml deploy/base/*.yaml deploy/cert-manager/*.yaml
//go:embed agent/hub/*.yaml agent/managed/*.yaml agent/deploy.yaml
var FS embed.FS
