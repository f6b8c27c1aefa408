package graphql

import (
	"encoding/json"
	"fmt"
	"time"
)

// object is the scalar Map.
type object struct {
	json json.RawMessage
}

// ImplementsGraphQLType names the scalar.
func (object) ImplementsGraphQLType(name string) bool { return name == "Map" }

// UnmarshalGraphQL refuses: nothing takes a Map.
func (*object) UnmarshalGraphQL(any) error { return fmt.Errorf("a Map cannot be given") }

// MarshalJSON returns the object.
func (o object) MarshalJSON() ([]byte, error) { return o.json, nil }

// date is the scalar Date.
type date struct {
	time time.Time
}

// ImplementsGraphQLType names the scalar.
func (date) ImplementsGraphQLType(name string) bool { return name == "Date" }

// UnmarshalGraphQL refuses: nothing takes a Date.
func (*date) UnmarshalGraphQL(any) error { return fmt.Errorf("a Date cannot be given") }

// MarshalJSON returns the time with milliseconds.
func (d date) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.time.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
