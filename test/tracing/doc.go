// Package tracing tests the traces of the server and of the agent in a fleet of test/framework, in which
// every program exports its spans to a collector of the test.
package tracing
