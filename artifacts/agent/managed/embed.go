// Package managed holds the manifests that an agent needs on its managed cluster.
package managed

import _ "embed"

// AppliedManifestWorkCRD is the CRD of AppliedManifestWorks, in YAML. The agent
// installs it by itself.
//
//go:embed appliedmanifestworks.crd.yaml
var AppliedManifestWorkCRD []byte
