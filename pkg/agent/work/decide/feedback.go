package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

const (
	// maxRaw bounds a value that is reported as JSON, in bytes.
	maxRaw = 1024
	// maxText bounds a string, in bytes.
	maxText = 4 << 10
	// maxFeedback bounds the values of one manifest, in bytes.
	maxFeedback = 16 << 10
)

// wellKnownPaths are the paths of the feedback rule type WellKnownStatus.
var wellKnownPaths = map[schema.GroupKind][]workv1.JsonPath{
	{Group: "apps", Kind: "Deployment"}: {
		{Name: "ReadyReplicas", Path: ".status.readyReplicas"},
		{Name: "Replicas", Path: ".status.replicas"},
		{Name: "AvailableReplicas", Path: ".status.availableReplicas"},
	},
	{Group: "apps", Kind: "DaemonSet"}: {
		{Name: "NumberReady", Path: ".status.numberReady"},
		{Name: "DesiredNumberScheduled", Path: ".status.desiredNumberScheduled"},
		{Name: "NumberAvailable", Path: ".status.numberAvailable"},
	},
	{Group: "batch", Kind: "Job"}: {
		{Name: "JobComplete", Path: `.status.conditions[?(@.type=="Complete")].status`},
		{Name: "JobSucceeded", Path: ".status.succeeded"},
	},
	{Kind: "Pod"}: {
		{Name: "PodReady", Path: `.status.conditions[?(@.type=="Ready")].status`},
		{Name: "PodPhase", Path: ".status.phase"},
	},
}

// SelectsNothing is the error of feedback whose only problem is that JSON paths select no value.
type SelectsNothing struct{ paths []string }

func (e *SelectsNothing) Error() string { return selectNothing(e.paths) }

func selectNothing(paths []string) string {
	return "These paths select nothing: " + strings.Join(paths, ", ")
}

// Feedback returns the values of a live object according to feedback rules, and an error for values
// that cannot be read or are not allowed. It omits fields that do not exist. If there is no other
// problem than those of JSON paths of users, the error is a *SelectsNothing.
func Feedback(budget *bounded.Budget, live *unstructured.Unstructured, rules []workv1.FeedbackRule, allowed FeedbackPaths) ([]workv1.FeedbackValue, error) {
	extent := bounded.ExtentOf(live.Object)
	var values []workv1.FeedbackValue
	var errs []error
	var empty []workv1.JsonPath
	reported := map[string]bool{}
	left := maxFeedback
	for _, rule := range rules {
		paths, permitted, wellKnown := rule.JsonPaths, allowed, rule.Type == workv1.WellKnownStatusType
		if wellKnown {
			kind := live.GroupVersionKind().GroupKind()
			permitted = nil
			if paths = wellKnownPaths[kind]; paths == nil {
				errs = append(errs, fmt.Errorf("no well-known status of %s", kind))
			}
		}
		for _, path := range paths {
			if reported[path.Name] {
				continue
			}
			value, err := valueOf(budget, live, extent, path, permitted)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path.Name, err))
				continue
			}
			switch {
			case value == nil && wellKnown:
			case value == nil:
				empty = append(empty, path)
			default:
				if left -= SizeOf(path.Name, value); left < 0 {
					return values, errors.Join(append(errs, fmt.Errorf("%s: the values take more than %d bytes; the remaining values are not reported", path.Name, maxFeedback))...)
				}
				reported[path.Name] = true
				values = append(values, workv1.FeedbackValue{Name: path.Name, Value: *value})
			}
		}
	}
	// Another path may report a value under the same name.
	empty = slices.DeleteFunc(empty, func(path workv1.JsonPath) bool { return reported[path.Name] })
	if len(empty) == 0 {
		return values, errors.Join(errs...)
	}
	nothing := &SelectsNothing{}
	for _, path := range empty {
		nothing.paths = append(nothing.paths, fmt.Sprintf("%s (%s)", path.Path, path.Name))
	}
	if len(errs) == 0 {
		return values, nothing
	}
	return values, errors.Join(append(errs, nothing)...)
}

// exceeds reports whether a value takes more than left bytes as JSON. It stops as soon as the
// result is certain, because a path may select one large value hundreds of times.
func exceeds(value any, left *int) bool {
	if *left--; *left < 0 {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			if *left -= len(key); exceeds(child, left) {
				return true
			}
		}
	case []any:
		for _, child := range value {
			if exceeds(child, left) {
				return true
			}
		}
	case string:
		*left -= len(value)
	}
	return *left < 0
}

// SizeOf returns the approximate size of a value in the status, in bytes.
func SizeOf(name string, value *workv1.FieldValue) int {
	size := len(name) + 64
	if value.String != nil {
		size += len(*value.String)
	}
	if value.JsonRaw != nil {
		size += len(*value.JsonRaw)
	}
	return size
}

// valueOf returns one value, or nil if the field does not exist.
func valueOf(budget *bounded.Budget, live *unstructured.Unstructured, extent bounded.Extent, path workv1.JsonPath, allowed FeedbackPaths) (*workv1.FieldValue, error) {
	if version, wanted := live.GroupVersionKind().Version, ptr.Deref(path.Version, ""); wanted != "" && wanted != version {
		return nil, fmt.Errorf("the path is for version %s, but the object is applied in version %s", wanted, version)
	}
	if err := budget.Spend(float64(fieldpath.ParseSteps * len(path.Path))); err != nil {
		return nil, notEvaluated(err)
	}
	parsed, err := fieldpath.ParseJSONPath(path.Path)
	if err != nil {
		return nil, fmt.Errorf("path %s: %w", path.Path, notEvaluated(err))
	}
	if err := allowed.check(parsed.Nodes()); err != nil {
		return nil, err
	}
	found, err := parsed.Find(budget, live.Object, extent)
	if err != nil {
		return nil, fmt.Errorf("path %s: %w", path.Path, notEvaluated(err))
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return fieldValue(found[0])
	default:
		return fieldValue(found)
	}
}

func fieldValue(value any) (*workv1.FieldValue, error) {
	switch value := value.(type) {
	case nil:
		return nil, nil
	case string:
		if len(value) > maxText {
			return nil, fmt.Errorf("the value takes %d bytes, more than the limit of %d", len(value), maxText)
		}
		return &workv1.FieldValue{Type: workv1.String, String: &value}, nil
	case bool:
		return &workv1.FieldValue{Type: workv1.Boolean, Boolean: &value}, nil
	case int64:
		return &workv1.FieldValue{Type: workv1.Integer, Integer: &value}, nil
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
			whole := int64(value)
			return &workv1.FieldValue{Type: workv1.Integer, Integer: &whole}, nil
		}
		text := strconv.FormatFloat(value, 'g', -1, 64)
		return &workv1.FieldValue{Type: workv1.String, String: &text}, nil
	default:
		if left := maxRaw; exceeds(value, &left) {
			return nil, fmt.Errorf("the value takes more than %d bytes as JSON", maxRaw)
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if len(raw) > maxRaw {
			return nil, fmt.Errorf("the value takes %d bytes as JSON, more than the limit of %d", len(raw), maxRaw)
		}
		text := string(raw)
		return &workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &text}, nil
	}
}
