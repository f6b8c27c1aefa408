// Package inventory is the protocol by which a cluster reports its resources: the
// JSON that public collectors send, and what they expect back.
package inventory

import "encoding/json"

// OverwriteHeader is the header that, with the value "true", marks a full report.
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

// Deleted is a resource that is gone.
type Deleted struct {
	UID string `json:"uid"`
}

// Edge relates two resources.
type Edge struct {
	SourceUID, DestUID   string
	SourceKind, DestKind string
	EdgeType             string
}

// Response answers a report.
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
}

// SyncError tells why a part of a report was not taken.
type SyncError struct {
	ResourceUID string
	Message     string
}
