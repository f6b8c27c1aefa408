//go:build !linux

package console

import "net/netip"

func ownUser() int { return 0 }

// peerUser reports that the user who opened a connection is unknown.
func peerUser(_, _ netip.AddrPort) (uid int, known bool) { return 0, false }
