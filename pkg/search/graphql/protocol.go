package graphql

import (
	"encoding/json"
	"slices"

	"github.com/gorilla/websocket"
)

// protocol is one of the two protocols for GraphQL over WebSocket. They differ in the names of
// messages and in error handling.
type protocol struct {
	name string
	// Clients send subscribe to start an operation and unsubscribe to end it. They receive data.
	subscribe, unsubscribe, data string
	// strict is true if the server closes the connection of a client that violates the protocol,
	// with a code for the reason.
	strict bool
}

var protocols = []*protocol{
	{name: "graphql-transport-ws", subscribe: "subscribe", unsubscribe: "complete", data: "next", strict: true},
	{name: "graphql-ws", subscribe: "start", unsubscribe: "stop", data: "data"},
}

// The other messages of the protocols.
const (
	connectionInit      = "connection_init"
	connectionAck       = "connection_ack"
	connectionError     = "connection_error"
	connectionTerminate = "connection_terminate"
	keepAlive           = "ka"
	ping                = "ping"
	pong                = "pong"
	operationError      = "error"
	operationComplete   = "complete"
)

// Close codes of graphql-transport-ws and of WebSocket.
const (
	closeBadMessage      = 4400
	closeUnauthorized    = 4401
	closeForbidden       = 4403
	closeInitTimeout     = 4408
	closeDuplicate       = 4409
	closeTooManyInits    = 4429
	closeNormal          = websocket.CloseNormalClosure
	closeGoingAway       = websocket.CloseGoingAway
	closePolicyViolation = websocket.ClosePolicyViolation
)

// frame is a message of either protocol.
type frame struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

func protocolNames() []string {
	var names []string
	for _, p := range protocols {
		names = append(names, p.name)
	}
	return names
}

func protocolNamed(name string) *protocol {
	i := slices.IndexFunc(protocols, func(p *protocol) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return protocols[i]
}
