// Package serving contains the code that the front ends of search share: the native API,
// FleetResources and GraphQL. It translates API requests into engine requests, finds the scope of
// the caller, turns errors of engines into API errors, and writes large responses.
package serving
