package search

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

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
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return codecs.EncoderForVersion(info.Serializer, searchv1alpha1.SchemeGroupVersion).Identifier()
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
	lists := serving.NewLists(`[{"uid":"`, `","cluster":"","properties":null}]`)
	out := *a.question
	out.SetGroupVersionKind(searchv1alpha1.SchemeGroupVersion.WithKind("Search"))
	out.Status = searchv1alpha1.SearchStatus{Warnings: a.warnings}
	if len(out.Spec.Searches) == 0 {
		out.Status.SearchResult = resultOf(lists, a.results[0])
	} else {
		for _, result := range a.results {
			out.Status.Count += int64(result.Count)
			out.Status.Results = append(out.Status.Results, resultOf(lists, result))
		}
	}
	encoded, err := json.Marshal(&out)
	if err != nil {
		return fmt.Errorf("encoding results: %w", err)
	}
	return lists.Write(to, append(encoded, '\n'))
}

// resultOf returns a result whose items are in the lists.
func resultOf(lists *serving.Lists, result *engine.Result) searchv1alpha1.SearchResult {
	out := searchv1alpha1.SearchResult{
		Count: int64(result.Count), Items: placeOf(lists, result.Items), MoreCounts: result.MoreCounts, Continue: result.Continue,
	}
	for _, value := range result.Counts {
		out.Counts = append(out.Counts, searchv1alpha1.PropertyValue{Value: value.Value, Count: int64(value.Count)})
	}
	for i := range result.Related {
		related := &result.Related[i]
		out.Related = append(out.Related, searchv1alpha1.RelatedResources{
			Kind: related.Kind, Count: int64(related.Count), Items: placeOf(lists, related.Items),
		})
	}
	return out
}

// placeOf adds items to the lists, and returns their place.
func placeOf(lists *serving.Lists, items []engine.Item) []searchv1alpha1.SearchItem {
	if len(items) == 0 {
		return nil
	}
	return []searchv1alpha1.SearchItem{{UID: lists.Add(len(items), func(dst []byte, i int) []byte { return appendItem(dst, &items[i]) })}}
}

func appendItem(dst []byte, item *engine.Item) []byte {
	dst = serving.AppendString(append(dst, `{"uid":`...), item.UID)
	dst = serving.AppendString(append(dst, `,"cluster":`...), item.Cluster)
	dst = item.Object.AppendJSON(append(dst, `,"properties":`...))
	for i, uid := range item.RelatedTo {
		if i == 0 {
			dst = append(dst, `,"relatedTo":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = serving.AppendString(dst, uid)
	}
	if len(item.RelatedTo) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}
