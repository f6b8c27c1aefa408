// Package join contains the commands that install the agent on a managed cluster, change, upgrade and remove it.
package join
