package fleetgen

import (
	"encoding/json"
	"fmt"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// syncResource is an inventory.Resource whose properties are encoded already: a fleet has millions of these.
type syncResource struct {
	Kind           string          `json:"kind,omitempty"`
	UID            string          `json:"uid"`
	ResourceString string          `json:"resourceString,omitempty"`
	Properties     json.RawMessage `json:"properties"`
}

// Sync returns a report as the JSON body that public collectors send. The resources of a full
// report are added; the resources of any other report are updated.
func Sync(report *search.Report) ([]byte, error) {
	resources := make([]syncResource, len(report.Put))
	for i := range report.Put {
		r := &report.Put[i]
		resources[i] = syncResource{
			Kind: search.Text(r.Properties, query.Kind), UID: r.UID,
			ResourceString: search.Text(r.Properties, query.KindPlural), Properties: r.Properties.AppendJSON(nil),
		}
	}
	var body struct {
		inventory.Sync
		AddResources    []syncResource `json:"addResources,omitempty"`
		UpdateResources []syncResource `json:"updateResources,omitempty"`
	}
	body.Sync = inventory.Sync{ClearAll: report.Full, AddEdges: edges(report.AddEdges), DeleteEdges: edges(report.DeleteEdges)}
	if report.Full {
		body.AddResources = resources
	} else {
		body.UpdateResources = resources
	}
	for _, uid := range report.Delete {
		body.DeleteResources = append(body.DeleteResources, inventory.Deleted{UID: uid})
	}
	encoded, err := json.Marshal(&body)
	if err != nil {
		return nil, fmt.Errorf("report of %s: %w", report.Cluster, err)
	}
	return encoded, nil
}

func edges(from []search.Edge) []inventory.Edge {
	to := make([]inventory.Edge, len(from))
	for i, e := range from {
		to[i] = inventory.Edge{
			SourceUID: e.SourceUID, DestUID: e.DestUID, SourceKind: e.SourceKind, DestKind: e.DestKind, EdgeType: e.Type,
		}
	}
	return to
}
