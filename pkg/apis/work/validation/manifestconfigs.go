package validation

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

// maxIdentifierLength bounds the name and the namespace of a resourceIdentifier, which may
// contain wildcards. No name of an object is longer.
const maxIdentifierLength = 253

func (e *expressions) validateManifestConfig(config *workv1.ManifestConfigOption, fldPath *field.Path) field.ErrorList {
	id := fldPath.Child("resourceIdentifier")
	errs := validate.Required(config.ResourceIdentifier.Resource, id.Child("resource"))
	errs = append(errs, validate.Required(config.ResourceIdentifier.Name, id.Child("name"))...)
	for child, value := range map[string]string{"name": config.ResourceIdentifier.Name, "namespace": ptr.Deref(config.ResourceIdentifier.Namespace, "")} {
		if len(value) > maxIdentifierLength {
			errs = append(errs, field.TooLong(id.Child(child), "", maxIdentifierLength))
		}
	}
	errs = append(errs, e.validateFeedbackRules(config.FeedbackRules, fldPath.Child("feedbackRules"))...)
	errs = append(errs, validate.Optional(config.FeedbackScrapeType, fldPath.Child("feedbackScrapeType"), workv1.FeedbackPollType, workv1.FeedbackWatchType)...)
	errs = append(errs, e.validateUpdateStrategy(config.UpdateStrategy, fldPath.Child("updateStrategy"))...)
	return append(errs, e.validateConditionRules(config.ConditionRules, fldPath.Child("conditionRules"))...)
}

func (e *expressions) validateFeedbackRules(rules []workv1.FeedbackRule, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := 0
	for _, rule := range rules {
		paths += max(1, len(rule.JsonPaths))
	}
	if paths > bounded.MaxFeedbackPaths {
		return field.ErrorList{field.TooMany(fldPath, paths, bounded.MaxFeedbackPaths)}
	}
	// The status lists all values of a manifest together, with their names as the keys.
	names := map[string]bool{}
	for i, rule := range rules {
		rulePath := fldPath.Index(i)
		errs = append(errs, validate.Supported(rule.Type, rulePath.Child("type"), workv1.JSONPathsType, workv1.WellKnownStatusType)...)
		if rule.Type == workv1.JSONPathsType && len(rule.JsonPaths) == 0 {
			errs = append(errs, field.Required(rulePath.Child("jsonPaths"), "must be set if type is JSONPaths"))
		}
		for j, path := range rule.JsonPaths {
			at := rulePath.Child("jsonPaths").Index(j)
			errs = append(errs, validate.Unique(path.Name, names, at.Child("name"))...)
			errs = append(errs, e.validateJSONPath(path.Path, at.Child("path"))...)
		}
	}
	return errs
}

func (e *expressions) validateJSONPath(path string, fldPath *field.Path) field.ErrorList {
	return e.validate("jsonPath "+path, path, fldPath, "invalid JSONPath", func() error {
		_, err := fieldpath.ParseJSONPath(path)
		return err
	})
}

func (e *expressions) validateUpdateStrategy(strategy *workv1.UpdateStrategy, fldPath *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	errs := validate.Supported(strategy.Type, fldPath.Child("type"),
		workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeReadOnly,
		workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeUpdate)
	apply := strategy.ServerSideApply
	if apply == nil {
		return errs
	}
	fldPath = fldPath.Child("serverSideApply")
	if strategy.Type != workv1.UpdateStrategyTypeServerSideApply {
		errs = append(errs, field.Forbidden(fldPath, "may be set only if type is ServerSideApply"))
	}
	if apply.FieldManager != "" && !strings.HasPrefix(apply.FieldManager, workv1.DefaultFieldManager) {
		errs = append(errs, field.Invalid(fldPath.Child("fieldManager"), apply.FieldManager, "must start with "+workv1.DefaultFieldManager))
	}
	conditions := map[string]bool{}
	for i := range apply.IgnoreFields {
		errs = append(errs, e.validateIgnoreField(&apply.IgnoreFields[i], conditions, fldPath.Child("ignoreFields").Index(i))...)
	}
	return errs
}

func (e *expressions) validateIgnoreField(ignore *workv1.IgnoreField, conditions map[string]bool, fldPath *field.Path) field.ErrorList {
	// The default applies to an empty condition, so that an empty one and the default are duplicates.
	condition := cmp.Or(ignore.Condition, workv1.IgnoreFieldsConditionOnSpokePresent)
	errs := validate.Supported(condition, fldPath.Child("condition"),
		workv1.IgnoreFieldsConditionOnSpokeChange, workv1.IgnoreFieldsConditionOnSpokePresent)
	errs = append(errs, validate.Unique(string(condition), conditions, fldPath.Child("condition"))...)
	for i, path := range ignore.JSONPaths {
		errs = append(errs, e.validate("fields "+path, path, fldPath.Child("jsonPaths").Index(i), "invalid JSONPath", func() error {
			_, err := fieldpath.ParseFields(path)
			return err
		})...)
	}
	for i, pointer := range ignore.JSONPointers {
		errs = append(errs, e.validate("pointer "+pointer, pointer, fldPath.Child("jsonPointers").Index(i), "invalid JSON pointer", func() error {
			return fieldpath.CheckPointer(pointer)
		})...)
	}
	for i, expression := range ignore.JQPathExpressions {
		errs = append(errs, e.validate("jq "+expression, expression, fldPath.Child("jqPathExpressions").Index(i), "invalid jq path expression", func() error {
			_, err := fieldpath.ParseJQ(expression)
			return err
		})...)
	}
	return errs
}
