// Package agent is the managed-cluster agent: it connects one managed cluster
// to its hub. What it does there is in the packages below; this one turns flags
// into clients and runs the parts.
package agent
