// Package upgrade starts the server on data of earlier releases. testdata/stored contains one object of
// each resource as a release has written it to etcd, in a directory for each release. HEAD is the
// current version.
package upgrade
