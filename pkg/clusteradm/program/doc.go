// Package program contains what the installation of the server and of the agent share: their flags, images and
// resources, and the Deployments that a cluster already has.
package program
