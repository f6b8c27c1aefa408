package clusteradm

import "testing"

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
