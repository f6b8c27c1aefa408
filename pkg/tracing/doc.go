// Package tracing exports OpenTelemetry spans, and joins the spans of the server and of the agent to one
// trace. A request and the pass over its ManifestWork run in different processes at different times, so the
// ManifestWork carries the trace context in between.
//
//	request ─► span of the server ─► annotation of the ManifestWork ─► span of the agent's pass ─► managed cluster
//
// All functions do nothing if the context has no recorded span.
package tracing
