package validation

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

// maxIdentifierLength bounds the name and the namespace of a resourceIdentifier, which may
// contain wildcards. No name is longer.
const maxIdentifierLength = 253

func (e *expressions) validateManifestConfig(config *work.ManifestConfigOption, fldPath *field.Path) field.ErrorList {
	id := fldPath.Child("resourceIdentifier")
	errs := require(config.ResourceIdentifier.Resource, id.Child("resource"))
	errs = append(errs, require(config.ResourceIdentifier.Name, id.Child("name"))...)
	for child, value := range map[string]string{"name": config.ResourceIdentifier.Name, "namespace": ptr.Deref(config.ResourceIdentifier.Namespace, "")} {
		if len(value) > maxIdentifierLength {
			errs = append(errs, field.TooLong(id.Child(child), "", maxIdentifierLength))
		}
	}
	errs = append(errs, e.validateFeedbackRules(config.FeedbackRules, fldPath.Child("feedbackRules"))...)
	if config.FeedbackScrapeType != "" {
		errs = append(errs, validateEnum(config.FeedbackScrapeType, fldPath.Child("feedbackScrapeType"),
			work.FeedbackPollType, work.FeedbackWatchType)...)
	}
	errs = append(errs, e.validateUpdateStrategy(config.UpdateStrategy, fldPath.Child("updateStrategy"))...)
	return append(errs, e.validateConditionRules(config.ConditionRules, fldPath.Child("conditionRules"))...)
}

func (e *expressions) validateFeedbackRules(rules []work.FeedbackRule, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := 0
	for _, rule := range rules {
		paths += max(1, len(rule.JsonPaths))
	}
	if paths > bounded.MaxFeedbackPaths {
		return field.ErrorList{field.TooMany(fldPath, paths, bounded.MaxFeedbackPaths)}
	}
	// All values of a manifest are reported in one list, whose key is their name.
	names := map[string]bool{}
	for i, rule := range rules {
		rulePath := fldPath.Index(i)
		errs = append(errs, validateEnum(rule.Type, rulePath.Child("type"), work.JSONPathsType, work.WellKnownStatusType)...)
		if rule.Type == work.JSONPathsType && len(rule.JsonPaths) == 0 {
			errs = append(errs, field.Required(rulePath.Child("jsonPaths"), "needed for the type JSONPaths"))
		}
		for j, path := range rule.JsonPaths {
			at := rulePath.Child("jsonPaths").Index(j)
			errs = append(errs, validateUniqueName(path.Name, names, at.Child("name"))...)
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

func (e *expressions) validateUpdateStrategy(strategy *work.UpdateStrategy, fldPath *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	errs := validateEnum(strategy.Type, fldPath.Child("type"),
		work.UpdateStrategyTypeCreateOnly,
		work.UpdateStrategyTypeReadOnly,
		work.UpdateStrategyTypeServerSideApply,
		work.UpdateStrategyTypeUpdate)
	apply := strategy.ServerSideApply
	if apply == nil {
		return errs
	}
	fldPath = fldPath.Child("serverSideApply")
	if strategy.Type != work.UpdateStrategyTypeServerSideApply {
		errs = append(errs, field.Forbidden(fldPath, "only for the type ServerSideApply"))
	}
	if apply.FieldManager != "" && !strings.HasPrefix(apply.FieldManager, workv1.DefaultFieldManager) {
		errs = append(errs, field.Invalid(fldPath.Child("fieldManager"), apply.FieldManager, "must begin with "+workv1.DefaultFieldManager))
	}
	conditions := map[string]bool{}
	for i := range apply.IgnoreFields {
		errs = append(errs, e.validateIgnoreField(&apply.IgnoreFields[i], conditions, fldPath.Child("ignoreFields").Index(i))...)
	}
	return errs
}

func (e *expressions) validateIgnoreField(ignore *work.IgnoreField, conditions map[string]bool, fldPath *field.Path) field.ErrorList {
	// Without a condition the default applies, so two such entries are the same one.
	condition := ignore.Condition
	if condition == "" {
		condition = work.IgnoreFieldsConditionOnSpokePresent
	}
	errs := validateEnum(condition, fldPath.Child("condition"),
		work.IgnoreFieldsConditionOnSpokeChange, work.IgnoreFieldsConditionOnSpokePresent)
	errs = append(errs, validateUniqueName(string(condition), conditions, fldPath.Child("condition"))...)
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
