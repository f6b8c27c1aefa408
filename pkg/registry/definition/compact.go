package definition

import (
	"hash/maphash"
	"reflect"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// internedStrings is the number of strings in an interner, and internedBytes their maximum length.
	internedStrings = 1 << 13
	internedBytes   = 64
)

// compactCodec decodes objects into less memory. The watch cache keeps every object, and every
// version of it for more than a minute. The JSON decoder leaves spare capacity in every list and
// allocates every string, although most strings of a status are the same few words.
type compactCodec struct {
	runtime.Codec
	strings *interner
}

// Decode implements runtime.Decoder.
func (c compactCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		c.compact(reflect.ValueOf(obj))
	}
	return obj, kind, err
}

// compact trims the lists and interns the short strings of a value, except those in maps.
func (c compactCodec) compact(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		c.compact(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				c.compact(field)
			}
		}
	case reflect.String:
		if n := v.Len(); n > 0 && n <= internedBytes {
			v.SetString(c.strings.intern(v.String()))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if n := v.Len(); n < v.Cap() {
			exact := reflect.MakeSlice(v.Type(), n, n)
			reflect.Copy(exact, v)
			v.Set(exact)
		}
		for i := range v.Len() {
			c.compact(v.Index(i))
		}
	}
}

// interner returns one copy for equal strings. Its memory is bounded: a string replaces another
// one with the same hash. It is safe for concurrent use.
type interner struct {
	seed  maphash.Seed
	slots [internedStrings]atomic.Pointer[string]
}

func newInterner() *interner { return &interner{seed: maphash.MakeSeed()} }

func (i *interner) intern(s string) string {
	slot := &i.slots[maphash.String(i.seed, s)%internedStrings]
	if known := slot.Load(); known != nil && *known == s {
		return *known
	}
	s = strings.Clone(s)
	slot.Store(&s)
	return s
}
