package clusteradm

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
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

// decodeManifests returns the objects of a stream of YAML documents.
func decodeManifests(t *testing.T, content string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// deploymentIn returns a Deployment of the manifests.
func deploymentIn(t *testing.T, objects []*unstructured.Unstructured, name string) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	if _, err := manifests.Find(objects, manifests.KindDeployment, name, deployment); err != nil {
		t.Fatal(err)
	}
	return deployment
}
