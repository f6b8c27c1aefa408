package graphql

import (
	"encoding/json"

	"github.com/gorilla/websocket"
)

// protocol is the protocol of GraphQL over WebSocket.
const protocol = "graphql-transport-ws"

// The messages of the protocol.
const (
	connectionInit    = "connection_init"
	connectionAck     = "connection_ack"
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

// frame is a message of the protocol.
type frame struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}
