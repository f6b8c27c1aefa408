package quota

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// scalarBytes is the approximate size of a number, a boolean or a time in JSON, with punctuation.
	scalarBytes = 12
	// quotingBytes is the size of quotes and a comma.
	quotingBytes = 3
	// overheadBytes is the approximate size of what an object needs in addition to its content: its kind and version, and
	// its keys in etcd and in the caches.
	overheadBytes = 512
)

// Size returns the approximate size of the JSON of a value. It does not encode the value, and ignores
// the case of field names.
func Size(value any) int64 { return measurementOf(value).bytes }

// ObjectSize returns the size of an object for quotas.
func ObjectSize(obj any) int64 { return Size(obj) + overheadBytes }

// Items returns the number of elements of all lists and maps in a value.
func Items(value any) int64 { return measurementOf(value).items }

type measurement struct{ bytes, items int64 }

func measurementOf(value any) measurement {
	var m measurement
	m.add(reflect.ValueOf(value))
	return m
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	quantityType = reflect.TypeFor[resource.Quantity]()
	fieldsType   = reflect.TypeFor[metav1.FieldsV1]()
)

// escapes contains the bytes that JSON adds to a byte of a string, and rawEscapes those that it adds to a byte
// of embedded JSON. Without them, a caller could store six times the size that a quota counts.
var escapes, rawEscapes [256]int64

func init() {
	for c := range ' ' {
		escapes[c] = int64(len(`u001f`))
	}
	escapes['"'], escapes['\\'], escapes['\n'], escapes['\r'], escapes['\t'] = 1, 1, 1, 1, 1
	for _, c := range "<>&" {
		escapes[c], rawEscapes[c] = int64(len(`u003c`)), int64(len(`u003c`))
	}
}

// lengthIn returns the length of a text in JSON, without quotes.
func lengthIn[T string | []byte](text T, escapes *[256]int64) int64 {
	length := int64(len(text))
	for i := range len(text) {
		length += escapes[text[i]]
	}
	return length
}

func (m *measurement) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			m.add(v.Elem())
		}
	case reflect.String:
		m.bytes += lengthIn(v.String(), &escapes) + quotingBytes
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			m.bytes += lengthIn(v.Bytes(), &rawEscapes) + quotingBytes
			return
		}
		m.items += int64(v.Len())
		for i := range v.Len() {
			m.add(v.Index(i))
			m.bytes++
		}
	case reflect.Map:
		m.items += int64(v.Len())
		for entries := v.MapRange(); entries.Next(); {
			m.add(entries.Key())
			m.add(entries.Value())
		}
	case reflect.Struct:
		m.addStruct(v)
	case reflect.Invalid, reflect.Chan, reflect.Func, reflect.UnsafePointer:
	default:
		m.bytes += scalarBytes
	}
}

func (m *measurement) addStruct(v reflect.Value) {
	switch v.Type() {
	case timeType, quantityType:
		m.bytes += 2 * scalarBytes
		return
	case fieldsType:
		if fields, ok := v.Interface().(metav1.FieldsV1); ok {
			m.bytes += lengthIn(fields.GetRawString(), &rawEscapes)
		}
		return
	}
	for _, f := range fieldsOf(v.Type()) {
		// The JSON omits empty fields.
		if field := v.Field(f.index); !field.IsZero() {
			m.bytes += f.bytes
			m.add(field)
		}
	}
}

// structField is an exported field of a struct and the size of its key.
type structField struct {
	index int
	bytes int64
}

var structFields sync.Map // reflect.Type → []structField

func fieldsOf(t reflect.Type) []structField {
	if known, ok := structFields.Load(t); ok {
		return known.([]structField)
	}
	var fields []structField
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		found := structField{index: i}
		if !f.Anonymous {
			found.bytes = int64(len(f.Name)) + quotingBytes + 1
		}
		fields = append(fields, found)
	}
	structFields.Store(t, fields)
	return fields
}
