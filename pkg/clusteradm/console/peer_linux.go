package console

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// socketTables list the sockets with their owners. The second contains those of programs that use IPv6 sockets for IPv4.
var socketTables = []string{"/proc/net/tcp", "/proc/net/tcp6"}

func ownUser() int { return os.Getuid() }

// peerUser returns the ID of the user who opened a connection from this machine, if the kernel lists it.
func peerUser(peer, local netip.AddrPort) (uid int, known bool) {
	for i, table := range socketTables {
		from, to := tableAddress(peer, i == 1), tableAddress(local, i == 1)
		file, err := os.Open(table)
		if err != nil {
			continue
		}
		// Of each socket: number, local and remote address, state, queues, timer, retransmissions, owner.
		for lines := bufio.NewScanner(file); lines.Scan() && !known; {
			if fields := strings.Fields(lines.Text()); len(fields) > 7 && fields[1] == from && fields[2] == to {
				uid, err = strconv.Atoi(fields[7])
				known = err == nil
			}
		}
		// It was only read.
		_ = file.Close()
		if known {
			return uid, true
		}
	}
	return 0, false
}

// tableAddress returns an address as the kernel prints it: words of four bytes in the order of the processor.
func tableAddress(address netip.AddrPort, mapped bool) string {
	four := address.Addr().Unmap().As4()
	bytes := four[:]
	if mapped {
		sixteen := netip.AddrFrom4(four).As16()
		bytes = sixteen[:]
	}
	var b strings.Builder
	for ; len(bytes) > 0; bytes = bytes[4:] {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(bytes))
	}
	return fmt.Sprintf("%s:%04X", b.String(), address.Port())
}
