package console

import (
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
)

// nobody is a user of the machine without permissions.
const nobody = 65534

// TestProxyRefusesOtherUsers lets another user of the machine open the URL, which every user can read in the list of
// processes.
func TestProxyRefusesOtherUsers(t *testing.T) {
	framework.RequireRoot(t)
	opened := openConsole(t, administrator(t, framework.Shared(t)))
	at := framework.Must(url.Parse(opened.first))(t)
	script := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%s; printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' >&3; cat <&3`, at.Port(), at.Path, at.Host)
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := command.CombinedOutput()
	if text := string(out); err != nil || !strings.HasPrefix(text, "HTTP/1.1 403") || !strings.Contains(text, "another user") {
		t.Errorf("GET of the URL by another user: error %v, want 403: %s", err, text)
	}
	opened.reports(t, fmt.Sprint(nobody))
	enter(t, opened.first)
}
