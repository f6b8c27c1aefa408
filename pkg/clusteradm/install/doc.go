// Package install contains the commands that install the server on a hub, change and upgrade it, and print how clusters
// join it.
package install
