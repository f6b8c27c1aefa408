// Package decide contains the decisions about ManifestWorks: which object a manifest describes, the
// content that the object must have, which objects a ManifestWork owns and may change, and which
// fields of an object are reported. The functions depend only on their arguments and make no
// requests.
package decide
