package search

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
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
		content, err := a.append(nil)
		if err != nil {
			return err
		}
		_, err = w.Write(append(content, '\n'))
		return err
	}
	search, err := a.decoded()
	if err != nil {
		return err
	}
	return encode(search, w)
}

func (a *answer) decoded() (*searchv1alpha1.Search, error) {
	content, err := a.append(nil)
	if err != nil {
		return nil, err
	}
	search := &searchv1alpha1.Search{}
	if err := json.Unmarshal(content, search); err != nil {
		return nil, fmt.Errorf("decoding results: %w", err)
	}
	return search, nil
}

// append appends the Search as JSON.
func (a *answer) append(dst []byte) ([]byte, error) {
	if dst == nil {
		dst = make([]byte, 0, a.size())
	}
	head := *a.question
	head.SetGroupVersionKind(searchv1alpha1.SchemeGroupVersion.WithKind("Search"))
	head.Status = searchv1alpha1.SearchStatus{}
	metadata, err := json.Marshal(&head.ObjectMeta)
	if err != nil {
		return nil, fmt.Errorf("encoding metadata: %w", err)
	}
	spec, err := json.Marshal(&head.Spec)
	if err != nil {
		return nil, fmt.Errorf("encoding the spec: %w", err)
	}
	dst = append(dst, `{"kind":"Search","apiVersion":"`...)
	dst = append(dst, searchv1alpha1.SchemeGroupVersion.String()...)
	dst = append(dst, `","metadata":`...)
	dst = append(dst, metadata...)
	dst = append(dst, `,"spec":`...)
	dst = append(dst, spec...)
	dst = append(dst, `,"status":{`...)
	if len(a.question.Spec.Searches) == 0 {
		dst = appendResult(dst, a.results[0])
	} else {
		dst = append(dst, `"count":`...)
		var sum int64
		for _, result := range a.results {
			sum += int64(result.Count)
		}
		dst = strconv.AppendInt(dst, sum, 10)
		dst = append(dst, `,"results":[`...)
		for i, result := range a.results {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '{')
			dst = appendResult(dst, result)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	if len(a.warnings) > 0 {
		dst = append(dst, `,"warnings":`...)
		warnings, err := json.Marshal(a.warnings)
		if err != nil {
			return nil, fmt.Errorf("encoding warnings: %w", err)
		}
		dst = append(dst, warnings...)
	}
	return append(dst, `}}`...), nil
}

// size is about how many bytes append needs.
func (a *answer) size() int {
	size := 1024
	for _, result := range a.results {
		size += itemsSize(result.Items)
		for i := range result.Related {
			size += itemsSize(result.Related[i].Items)
		}
	}
	return size
}

func itemsSize(items []engine.Item) int {
	size := 0
	for i := range items {
		item := &items[i]
		size += len(item.JSON) + len(item.UID) + len(item.Cluster) + 64
		for _, uid := range item.RelatedTo {
			size += len(uid) + 3
		}
	}
	return size
}

func appendResult(dst []byte, result *engine.Result) []byte {
	dst = append(dst, `"count":`...)
	dst = strconv.AppendInt(dst, int64(result.Count), 10)
	dst = appendItems(dst, result.Items)
	for i := range result.Related {
		if i == 0 {
			dst = append(dst, `,"related":[`...)
		} else {
			dst = append(dst, ',')
		}
		related := &result.Related[i]
		dst = append(dst, `{"kind":`...)
		dst = appendString(dst, related.Kind)
		dst = append(dst, `,"count":`...)
		dst = strconv.AppendInt(dst, int64(related.Count), 10)
		dst = appendItems(dst, related.Items)
		dst = append(dst, '}')
	}
	if len(result.Related) > 0 {
		dst = append(dst, ']')
	}
	if result.Continue != "" {
		dst = append(dst, `,"continue":`...)
		dst = appendString(dst, result.Continue)
	}
	return dst
}

func appendItems(dst []byte, items []engine.Item) []byte {
	for i := range items {
		if i == 0 {
			dst = append(dst, `,"items":[`...)
		} else {
			dst = append(dst, ',')
		}
		item := &items[i]
		dst = append(dst, `{"uid":`...)
		dst = appendString(dst, item.UID)
		dst = append(dst, `,"cluster":`...)
		dst = appendString(dst, item.Cluster)
		dst = append(dst, `,"properties":`...)
		dst = append(dst, item.JSON...)
		for j, uid := range item.RelatedTo {
			if j == 0 {
				dst = append(dst, `,"relatedTo":[`...)
			} else {
				dst = append(dst, ',')
			}
			dst = appendString(dst, uid)
		}
		if len(item.RelatedTo) > 0 {
			dst = append(dst, ']')
		}
		dst = append(dst, '}')
	}
	if len(items) > 0 {
		dst = append(dst, ']')
	}
	return dst
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
