package clusteradm

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAcceptRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no clusters":         {nil, "--clusters is required"},
		"bad name":            {[]string{"--clusters=A_B"}, `--clusters "A_B"`},
		"denied and approved": {[]string{"--clusters=c1", "--deny", "--skip-approve-check"}, "cannot be used with --deny"},
	} {
		t.Run(name, func(t *testing.T) {
			runCommand(t, append([]string{"accept"}, test.args...)...).refused(t, test.want)
		})
	}
}

// TestAcceptNamesEachFailure checks that the error names all clusters, however many have failed.
func TestAcceptNamesEachFailure(t *testing.T) {
	hub := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(hub.Close)
	var names, want []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("cluster%d", i))
		want = append(want, names[i]+": ")
	}
	runCommand(t, "--server", hub.URL, "accept", "--clusters="+strings.Join(names, ",")).refused(t, want...)
}
