// Package inventory contains the protocol by which a cluster reports its resources: the
// JSON of the requests of upstream collectors and of the responses.
package inventory

import "encoding/json"

// OverwriteHeader marks a full report if its value is "true".
const OverwriteHeader = "X-Overwrite-State"

// Sync is the body of a report.
type Sync struct {
	// ClearAll also marks a full report.
	ClearAll bool `json:"clearAll,omitempty"`
	// Version is the version of the collector.
	Version         string     `json:"version,omitempty"`
	AddResources    []Resource `json:"addResources,omitempty"`
	UpdateResources []Resource `json:"updateResources,omitempty"`
	DeleteResources []Deleted  `json:"deleteResources,omitempty"`
	AddEdges        []Edge     `json:"addEdges,omitempty"`
	DeleteEdges     []Edge     `json:"deleteEdges,omitempty"`
}

// Resource is a resource that is new or changed.
type Resource struct {
	Kind string `json:"kind,omitempty"`
	// UID is "<cluster>/<uid>".
	UID string `json:"uid"`
	// ResourceString is the plural name of the resource.
	ResourceString string `json:"resourceString,omitempty"`
	// Properties are strings, numbers, booleans, maps and lists.
	Properties map[string]json.RawMessage `json:"properties"`
}

// Deleted is a deleted resource.
type Deleted struct {
	UID string `json:"uid"`
}

// Edge relates two resources.
type Edge struct {
	SourceUID, DestUID   string
	SourceKind, DestKind string
	EdgeType             string
}

// Response is the response to a report.
type Response struct {
	TotalAdded        int
	TotalUpdated      int
	TotalDeleted      int
	TotalResources    int
	TotalEdgesAdded   int
	TotalEdgesDeleted int
	TotalEdges        int
	AddErrors         []SyncError
	UpdateErrors      []SyncError
	DeleteErrors      []SyncError
	AddEdgeErrors     []SyncError
	DeleteEdgeErrors  []SyncError
	Version           string
	// Access is true if the hub stores the content of RBAC objects; see Rules.
	Access bool `json:",omitempty"`
}

// SyncError describes why a part of a report was not stored.
type SyncError struct {
	ResourceUID string
	Message     string
}
