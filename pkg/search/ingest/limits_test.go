package ingest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestDocumentedLimits checks that the default limits are those of docs. Tests of the limits set them.
func TestDocumentedLimits(t *testing.T) {
	h := serve(t, Config{}).handler
	l := h.config.Limits
	for page, lines := range map[string][]string{
		"limits.md": {
			fmt.Sprintf("| stored resources of one cluster | %s |", grouped(h.config.ClusterResources)),
			fmt.Sprintf("| approximate memory of these resources | %d GiB |", h.config.ClusterBytes>>30),
			fmt.Sprintf("| bytes, compressed and decompressed | %d MiB |", l.BodyBytes>>20),
			fmt.Sprintf("| bytes of its properties; number of properties | %d KiB; %d |", l.ResourceBytes>>10, l.Properties),
			fmt.Sprintf("| different names of properties; different `EdgeType`s of added edges | %s; %s |", grouped(l.Names), grouped(l.Relations)),
			fmt.Sprintf("| resources; values; edges | %s; %s; %s |", grouped(l.Resources), grouped(l.Values), grouped(l.Edges)),
			fmt.Sprintf("| in all; of %d MB and more; memory of the latter; of one cluster | %d; %d; %d GiB; 1 |",
				h.config.LargeBytes/1_000_000, h.config.Reports, h.config.LargeReports, h.config.LargeTotal>>30),
		},
		"search-sync.md": {
			fmt.Sprintf("the report did not arrive in time: %.0f minutes", h.config.Timeout.Minutes()),
			fmt.Sprintf("| `Silent` | it has not reported for %.0f minutes |", h.config.SilentAfter.Minutes()),
			"If a ManagedCluster is deleted, the server removes its resources. The resources of the hub are kept for a day",
		},
	} {
		content, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(content), line) {
				t.Errorf("docs/%s does not contain %q", page, line)
			}
		}
	}
	if hubKept != 24*time.Hour {
		t.Errorf("resources of the hub are kept for %s, documented: a day", hubKept)
	}
}

// grouped returns a number as docs write it, such as 500,000.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
