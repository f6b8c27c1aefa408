package clusteradm

import (
	"bytes"
	"encoding/pem"
	"strings"
	"testing"
)

const (
	hubARN     = "arn:aws:eks:us-west-2:123456789012:cluster/hub-cluster1"
	managedARN = "arn:aws:eks:us-east-1:123456789012:cluster/managed-cluster1"
)

// outcome is the output and the error of a command.
type outcome struct {
	out, errOut string
	err         error
}

func runCommand(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	command := New(strings.NewReader(""), &out, &errOut)
	command.SilenceErrors = true
	command.SetArgs(args)
	err := command.ExecuteContext(t.Context())
	return outcome{out: out.String(), errOut: errOut.String(), err: err}
}

// done fails the test if the command failed.
func (o outcome) done(t *testing.T) outcome {
	t.Helper()
	if o.err != nil {
		t.Fatalf("clusteradm: %v, want no error\n%s%s", o.err, o.out, o.errOut)
	}
	return o
}

// refused fails the test unless the command failed with an error that contains the texts.
func (o outcome) refused(t *testing.T, texts ...string) {
	t.Helper()
	if o.err == nil {
		t.Fatalf("clusteradm: no error, want one\n%s%s", o.out, o.errOut)
	}
	for _, text := range texts {
		if !strings.Contains(o.err.Error(), text) {
			t.Errorf("clusteradm: error %v, want one that contains %q", o.err, text)
		}
	}
}

// shows fails the test unless the command printed the texts.
func (o outcome) shows(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.out+o.errOut, text) {
			t.Errorf("clusteradm printed\n%s%s\nwant a text that contains %q; error %v", o.out, o.errOut, text, o.err)
		}
	}
}

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
