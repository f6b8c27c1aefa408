package graphql

import (
	"encoding/json"

	"github.com/gorilla/websocket"
)

// The protocols of GraphQL over WebSocket. Some messages of the former one have other names.
const (
	protocol       = "graphql-transport-ws"
	formerProtocol = "graphql-ws"
	formerData     = "data"
)

var (
	protocols     = []string{protocol, formerProtocol}
	formerClients = map[string]string{"start": operationStart, "stop": operationComplete}
)

// The messages of the protocol, and connectionEnd of the former one.
const (
	connectionInit    = "connection_init"
	connectionAck     = "connection_ack"
	connectionEnd     = "connection_terminate"
	ping              = "ping"
	pong              = "pong"
	operationStart    = "subscribe"
	operationData     = "next"
	operationError    = "error"
	operationComplete = "complete"
)

// Close codes of the protocol and of WebSocket.
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
