package localhub

import "testing"

// TestFreePortIsGivenOnce checks a range that has fewer ports than the test requests.
func TestFreePortIsGivenOnce(t *testing.T) {
	const first, last = firstPort - 8, firstPort
	portsMu.Lock()
	defer portsMu.Unlock()
	seen := map[int]bool{}
	for {
		port, err := freePort(first, last)
		if err != nil {
			break
		}
		if port < first || port >= last || seen[port] {
			t.Fatalf("freePort(%d, %d) = %d after %v, want each port once", first, last, port, seen)
		}
		seen[port] = true
	}
	if len(seen) == 0 {
		t.Errorf("freePort(%d, %d) returned no port, want at least one", first, last)
	}
}
