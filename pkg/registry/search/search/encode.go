package search

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

// answer is a Search whose results are written as the engine has them, in JSON
// already. Thousands of items would otherwise be decoded to be encoded again.
type answer struct {
	question *searchv1alpha1.Search
	results  []*engine.Result
	warnings []string
	// plain identifies the encoder that writes the JSON which append makes.
	plain runtime.Identifier
}

var _ runtime.CacheableObject = &answer{}

// plainJSON identifies the encoder of compact JSON in our version.
func plainJSON(codecs serializer.CodecFactory) runtime.Identifier {
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			return codecs.EncoderForVersion(info.Serializer, searchv1alpha1.SchemeGroupVersion).Identifier()
		}
	}
	return ""
}

// GetObjectKind implements runtime.Object.
func (a *answer) GetObjectKind() schema.ObjectKind { return a.question.GetObjectKind() }

// DeepCopyObject implements runtime.Object. Results are not changed by anyone.
func (a *answer) DeepCopyObject() runtime.Object {
	out := *a
	out.question = a.question.DeepCopy()
	return &out
}

// GetObject implements runtime.CacheableObject.
func (a *answer) GetObject() runtime.Object {
	search, err := a.decoded()
	if err != nil {
		return a.question
	}
	return search
}

// CacheEncode implements runtime.CacheableObject.
func (a *answer) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	if id == a.plain {
		return a.write(w)
	}
	search, err := a.decoded()
	if err != nil {
		return err
	}
	return encode(search, w)
}

func (a *answer) decoded() (*searchv1alpha1.Search, error) {
	var content bytes.Buffer
	if err := a.write(&content); err != nil {
		return nil, err
	}
	search := &searchv1alpha1.Search{}
	if err := json.Unmarshal(content.Bytes(), search); err != nil {
		return nil, fmt.Errorf("decoding results: %w", err)
	}
	return search, nil
}

// chunkSize is how much is written at once. The first write of an answer decides
// whether it is compressed, which the machinery does from 128 KiB on.
const chunkSize = 256 << 10

// chunks are buffers of answers that are being written.
var chunks = sync.Pool{New: func() any {
	chunk := make([]byte, 0, chunkSize)
	return &chunk
}}

// chunkWriter gathers what is appended to next, and writes it chunk by chunk.
type chunkWriter struct {
	to   io.Writer
	next []byte
	err  error
	// encoder is a place from the second chunk on.
	encoder terms.Encoder
}

// flush writes what there is, if that is at least so much.
func (w *chunkWriter) flush(atLeast int) {
	if len(w.next) < atLeast {
		return
	}
	if w.err == nil {
		w.encoder.End()
		_, w.err = w.to.Write(w.next)
		w.encoder.Begin()
	}
	w.next = w.next[:0]
}

// write writes the Search as JSON.
func (a *answer) write(to io.Writer) error {
	chunk, ok := chunks.Get().(*[]byte)
	if !ok {
		return errors.New("not a buffer")
	}
	w := &chunkWriter{to: to, next: (*chunk)[:0]}
	defer func() {
		w.encoder.End()
		*chunk = w.next
		chunks.Put(chunk)
	}()
	if err := a.append(w); err != nil {
		return err
	}
	w.next = append(w.next, '\n')
	w.flush(1)
	return w.err
}

func (a *answer) append(w *chunkWriter) error {
	head := *a.question
	head.SetGroupVersionKind(searchv1alpha1.SchemeGroupVersion.WithKind("Search"))
	head.Status = searchv1alpha1.SearchStatus{}
	metadata, err := json.Marshal(&head.ObjectMeta)
	if err != nil {
		return fmt.Errorf("encoding metadata: %w", err)
	}
	spec, err := json.Marshal(&head.Spec)
	if err != nil {
		return fmt.Errorf("encoding the spec: %w", err)
	}
	w.next = append(w.next, `{"kind":"Search","apiVersion":"`...)
	w.next = append(w.next, searchv1alpha1.SchemeGroupVersion.String()...)
	w.next = append(w.next, `","metadata":`...)
	w.next = append(w.next, metadata...)
	w.next = append(w.next, `,"spec":`...)
	w.next = append(w.next, spec...)
	w.next = append(w.next, `,"status":{`...)
	if len(a.question.Spec.Searches) == 0 {
		w.appendResult(a.results[0])
	} else {
		w.next = append(w.next, `"count":`...)
		var sum int64
		for _, result := range a.results {
			sum += int64(result.Count)
		}
		w.next = strconv.AppendInt(w.next, sum, 10)
		w.next = append(w.next, `,"results":[`...)
		for i, result := range a.results {
			if i > 0 {
				w.next = append(w.next, ',')
			}
			w.next = append(w.next, '{')
			w.appendResult(result)
			w.next = append(w.next, '}')
		}
		w.next = append(w.next, ']')
	}
	if len(a.warnings) > 0 {
		warnings, err := json.Marshal(a.warnings)
		if err != nil {
			return fmt.Errorf("encoding warnings: %w", err)
		}
		w.next = append(w.next, `,"warnings":`...)
		w.next = append(w.next, warnings...)
	}
	w.next = append(w.next, `}}`...)
	return nil
}

func (w *chunkWriter) appendResult(result *engine.Result) {
	w.next = append(w.next, `"count":`...)
	w.next = strconv.AppendInt(w.next, int64(result.Count), 10)
	w.appendItems(result.Items)
	for i := range result.Related {
		if i == 0 {
			w.next = append(w.next, `,"related":[`...)
		} else {
			w.next = append(w.next, ',')
		}
		related := &result.Related[i]
		w.next = append(w.next, `{"kind":`...)
		w.next = appendString(w.next, related.Kind)
		w.next = append(w.next, `,"count":`...)
		w.next = strconv.AppendInt(w.next, int64(related.Count), 10)
		w.appendItems(related.Items)
		w.next = append(w.next, '}')
	}
	if len(result.Related) > 0 {
		w.next = append(w.next, ']')
	}
	if result.Continue != "" {
		w.next = append(w.next, `,"continue":`...)
		w.next = appendString(w.next, result.Continue)
	}
}

func (w *chunkWriter) appendItems(items []engine.Item) {
	for i := range items {
		next := w.next
		if i == 0 {
			next = append(next, `,"items":[`...)
		} else {
			next = append(next, ',')
		}
		item := &items[i]
		next = append(next, `{"uid":`...)
		next = appendString(next, item.UID)
		next = append(next, `,"cluster":`...)
		next = appendString(next, item.Cluster)
		next = append(next, `,"properties":`...)
		next = item.Object.AppendJSON(next)
		for j, uid := range item.RelatedTo {
			if j == 0 {
				next = append(next, `,"relatedTo":[`...)
			} else {
				next = append(next, ',')
			}
			next = appendString(next, uid)
		}
		if len(item.RelatedTo) > 0 {
			next = append(next, ']')
		}
		w.next = append(next, '}')
		if w.flush(chunkSize - chunkSize/8); w.err != nil {
			// The client has gone.
			return
		}
	}
	if len(items) > 0 {
		w.next = append(w.next, ']')
	}
}

// appendString appends a string as JSON. Names of clusters, kinds and UIDs hardly
// ever need an escape.
func appendString(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
			quoted, err := json.Marshal(text)
			if err != nil {
				return append(dst, `""`...)
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, text...)
	return append(dst, '"')
}
