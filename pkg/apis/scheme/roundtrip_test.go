package scheme

import (
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/test/seed"
)

const groupSuffix = ".open-cluster-management.io"

func filler(t *testing.T, funcs ...fuzzer.FuzzerFuncs) *randfill.Filler {
	funcs = append(funcs, metafuzzer.Funcs, validFuncs)
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(funcs...), rand.NewSource(int64(seed.Of(t))), Codecs)
}

func TestRoundTrip(t *testing.T) {
	for gvk, goType := range Scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal && strings.HasPrefix(goType.PkgPath(), "open-cluster-management.io/") {
			t.Run(gvk.String(), func(t *testing.T) {
				roundtrip.RoundTripSpecificKindWithoutProtobuf(t, gvk, Scheme, Codecs, filler(t, storedFuncs), nil)
			})
		}
	}
}

// Objects are defaulted again when they are read from storage. This must not change them.
func TestDefaultingTwiceChangesNothing(t *testing.T) {
	for gvk := range Scheme.AllKnownTypes() {
		if !strings.HasSuffix(gvk.Group, groupSuffix) || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		t.Run(gvk.String(), func(t *testing.T) {
			filler := filler(t)
			for range 50 {
				obj, err := Scheme.New(gvk)
				if err != nil {
					t.Fatal(err)
				}
				filler.Fill(obj)
				Scheme.Default(obj)
				once := obj.DeepCopyObject()
				Scheme.Default(obj)
				if !apiequality.Semantic.DeepEqual(once, obj) {
					t.Fatalf("object after a second Default() =\n%#v\nwant\n%#v", obj, once)
				}
			}
		})
	}
}

// Objects are stored and sent in a version, so that requests for an internal kind without
// a version would fail. The reverse is valid: the server does not serve the kinds that
// agents store on managed clusters.
func TestEveryInternalKindHasAVersion(t *testing.T) {
	internal := map[string]reflect.Type{}
	versioned := map[string]reflect.Type{}
	for gvk, goType := range Scheme.AllKnownTypes() {
		if !strings.HasSuffix(gvk.Group, groupSuffix) || !strings.HasPrefix(goType.PkgPath(), "open-cluster-management.io/") {
			continue
		}
		key := gvk.GroupKind().String()
		if gvk.Version == runtime.APIVersionInternal {
			internal[key] = goType
		} else {
			versioned[key] = goType
		}
	}
	for key := range internal {
		if versioned[key] == nil {
			t.Errorf("number of versioned types of %s = 0, want at least 1", key)
		}
	}
	if len(internal) == 0 {
		t.Error("number of kinds = 0, want at least 1")
	}
}
