// Package manifests builds the manifests of this project, and applies them to a cluster.
package manifests
