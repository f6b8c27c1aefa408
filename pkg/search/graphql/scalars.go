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

// ImplementsGraphQLType implements decode.Unmarshaler.
func (object) ImplementsGraphQLType(name string) bool { return name == "Map" }

// UnmarshalGraphQL implements decode.Unmarshaler.
func (*object) UnmarshalGraphQL(any) error { return fmt.Errorf("type Map is not an input type") }

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) { return o.json, nil }

// date is the scalar Date.
type date struct {
	time time.Time
}

// ImplementsGraphQLType implements decode.Unmarshaler.
func (date) ImplementsGraphQLType(name string) bool { return name == "Date" }

// UnmarshalGraphQL implements decode.Unmarshaler.
func (*date) UnmarshalGraphQL(any) error { return fmt.Errorf("type Date is not an input type") }

// MarshalJSON implements json.Marshaler, with milliseconds.
func (d date) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.time.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
