package fleetresource

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// encodeEvent encodes an event as the generic API server does.
func encodeEvent(t *testing.T, event watch.EventType, object runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("the codecs have no JSON")
	}
	raw, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, searchv1alpha1.SchemeGroupVersion), object)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(&metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw}})
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

// The server encodes events directly only if both encodings of the sample are equal.
func TestAppendEventEqualsGenericEncoding(t *testing.T) {
	if got, want := appendEvent(nil, watch.Added, sample), encodeEvent(t, watch.Added, sample); !bytes.Equal(got, want) {
		t.Errorf("appendEvent(sample) = %s, want %s", got, want)
	}
	for _, properties := range []string{
		`{}`,
		`{"name":"x"}`,
		`{"kind":"ConfigMap","name":"<a> & \"b\"","namespace":"ü","created":"not a time","label":{"<":"&"}}`,
		`{"kind":["a","b"],"name":5,"label":"none","data":{"nested":"a\u0001b"}}`,
	} {
		object := newObject(&search.Item{UID: "cluster/<uid>", Cluster: "cluster", Version: 1 << 60, Object: search.JSON(properties)})
		var got, want any
		if err := json.Unmarshal(appendEvent(nil, watch.Deleted, object), &got); err != nil {
			t.Fatalf("appendEvent(%s): %v", properties, err)
		}
		if err := json.Unmarshal(encodeEvent(t, watch.Deleted, object), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("appendEvent(%s) = %v, want %v", properties, got, want)
		}
	}
}

// A client that watches metadata, a table or YAML receives what the generic encoder writes.
func TestEventsOfOtherEncodersAreNotEncodedDirectly(t *testing.T) {
	for _, test := range []struct {
		id, generic, want string
	}{
		{"other " + t.Name(), "other", "other"},
		{"equal " + t.Name(), string(appendEvent(nil, watch.Added, sample)), string(appendEvent(nil, watch.Added, sample))},
	} {
		for range 2 {
			var got bytes.Buffer
			object := &eventObject{FleetResource: sample, event: watch.Added, done: func() {}}
			err := object.CacheEncode(runtime.Identifier(test.id), func(_ runtime.Object, to io.Writer) error {
				_, err := io.WriteString(to, test.generic)
				return err
			}, &got)
			if err != nil || got.String() != test.want {
				t.Errorf("CacheEncode(%s) = %s, %v, want %s", test.id, &got, err, test.want)
			}
		}
	}
}
