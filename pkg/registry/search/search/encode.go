package search

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// answer is a Search that is encoded with the JSON of the items that the engine returns. Otherwise thousands of
// items would be decoded and encoded again.
type answer struct {
	question *searchv1alpha1.Search
	results  []*engine.Result
	warnings []string
	// plain identifies the encoder that produces the same output as append.
	plain runtime.Identifier
}

var _ runtime.CacheableObject = &answer{}

// plainJSON identifies the encoder of compact JSON in the served version.
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

// DeepCopyObject implements runtime.Object. Results are shared because they never change.
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

// write writes the Search as JSON.
func (a *answer) write(to io.Writer) error {
	w := &resultWriter{Writer: serving.NewWriter(to)}
	err := a.append(w)
	w.Buffer = append(w.Buffer, '\n')
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return err
}

// resultWriter appends results as JSON.
type resultWriter struct{ *serving.Writer }

func (a *answer) append(w *resultWriter) error {
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
	w.Buffer = append(w.Buffer, `{"kind":"Search","apiVersion":"`...)
	w.Buffer = append(w.Buffer, searchv1alpha1.SchemeGroupVersion.String()...)
	w.Buffer = append(w.Buffer, `","metadata":`...)
	w.Buffer = append(w.Buffer, metadata...)
	w.Buffer = append(w.Buffer, `,"spec":`...)
	w.Buffer = append(w.Buffer, spec...)
	w.Buffer = append(w.Buffer, `,"status":{`...)
	if len(a.question.Spec.Searches) == 0 {
		w.appendResult(a.results[0])
	} else {
		w.Buffer = append(w.Buffer, `"count":`...)
		var sum int64
		for _, result := range a.results {
			sum += int64(result.Count)
		}
		w.Buffer = strconv.AppendInt(w.Buffer, sum, 10)
		w.Buffer = append(w.Buffer, `,"results":[`...)
		for i, result := range a.results {
			if i > 0 {
				w.Buffer = append(w.Buffer, ',')
			}
			w.Buffer = append(w.Buffer, '{')
			w.appendResult(result)
			w.Buffer = append(w.Buffer, '}')
		}
		w.Buffer = append(w.Buffer, ']')
	}
	if len(a.warnings) > 0 {
		warnings, err := json.Marshal(a.warnings)
		if err != nil {
			return fmt.Errorf("encoding warnings: %w", err)
		}
		w.Buffer = append(w.Buffer, `,"warnings":`...)
		w.Buffer = append(w.Buffer, warnings...)
	}
	w.Buffer = append(w.Buffer, `}}`...)
	return nil
}

func (w *resultWriter) appendResult(result *engine.Result) {
	w.Buffer = append(w.Buffer, `"count":`...)
	w.Buffer = strconv.AppendInt(w.Buffer, int64(result.Count), 10)
	w.appendItems(result.Items)
	for i := range result.Counts {
		if i == 0 {
			w.Buffer = append(w.Buffer, `,"counts":[`...)
		} else {
			w.Buffer = append(w.Buffer, ',')
		}
		w.Buffer = append(w.Buffer, `{"value":`...)
		w.Buffer = serving.AppendString(w.Buffer, result.Counts[i].Value)
		w.Buffer = append(w.Buffer, `,"count":`...)
		w.Buffer = strconv.AppendInt(w.Buffer, int64(result.Counts[i].Count), 10)
		w.Buffer = append(w.Buffer, '}')
	}
	if len(result.Counts) > 0 {
		w.Buffer = append(w.Buffer, ']')
	}
	if result.MoreCounts {
		w.Buffer = append(w.Buffer, `,"moreCounts":true`...)
	}
	for i := range result.Related {
		if i == 0 {
			w.Buffer = append(w.Buffer, `,"related":[`...)
		} else {
			w.Buffer = append(w.Buffer, ',')
		}
		related := &result.Related[i]
		w.Buffer = append(w.Buffer, `{"kind":`...)
		w.Buffer = serving.AppendString(w.Buffer, related.Kind)
		w.Buffer = append(w.Buffer, `,"count":`...)
		w.Buffer = strconv.AppendInt(w.Buffer, int64(related.Count), 10)
		w.appendItems(related.Items)
		w.Buffer = append(w.Buffer, '}')
	}
	if len(result.Related) > 0 {
		w.Buffer = append(w.Buffer, ']')
	}
	if result.Continue != "" {
		w.Buffer = append(w.Buffer, `,"continue":`...)
		w.Buffer = serving.AppendString(w.Buffer, result.Continue)
	}
}

func (w *resultWriter) appendItems(items []engine.Item) {
	for i := range items {
		next := w.Buffer
		if i == 0 {
			next = append(next, `,"items":[`...)
		} else {
			next = append(next, ',')
		}
		item := &items[i]
		next = append(next, `{"uid":`...)
		next = serving.AppendString(next, item.UID)
		next = append(next, `,"cluster":`...)
		next = serving.AppendString(next, item.Cluster)
		next = append(next, `,"properties":`...)
		next = item.Object.AppendJSON(next)
		for j, uid := range item.RelatedTo {
			if j == 0 {
				next = append(next, `,"relatedTo":[`...)
			} else {
				next = append(next, ',')
			}
			next = serving.AppendString(next, uid)
		}
		if len(item.RelatedTo) > 0 {
			next = append(next, ']')
		}
		w.Buffer = append(next, '}')
		if w.Flush() != nil {
			// Close returns the error.
			return
		}
	}
	if len(items) > 0 {
		w.Buffer = append(w.Buffer, ']')
	}
}
