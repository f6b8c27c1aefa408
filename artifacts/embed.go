// Package artifacts holds the manifests to install, as clusteradm applies them.
package artifacts

import "embed"

// FS contains the manifests and their kustomizations, under the paths that they have in this directory.
//
//go:embed rbac apiservice deploy agent
var FS embed.FS
