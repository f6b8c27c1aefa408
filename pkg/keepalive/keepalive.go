// Package keepalive makes the clients of a process notice soon that a server does not respond.
package keepalive

import "os"

// The timeouts of client-go's connections, in seconds. By default, a client notices after 45 seconds that a server
// hangs, or that the network drops all packets. Until then a watch looks as if nothing changed.
var timeouts = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5",
	"HTTP2_PING_TIMEOUT_SECONDS":      "5",
}

// Use sets the timeouts of all clients that the process creates afterwards, unless the environment of the process
// sets them. Call it before the first client is created.
func Use() error {
	for name, value := range timeouts {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
