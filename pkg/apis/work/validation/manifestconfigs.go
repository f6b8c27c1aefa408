package validation

import (
	"strings"

	"github.com/itchyny/gojq"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// The parsers recurse, so an expression as long as a request would take a lot of stack.
const maxExpressionLength = 4096

func validateManifestConfig(config *work.ManifestConfigOption, fldPath *field.Path) field.ErrorList {
	id := fldPath.Child("resourceIdentifier")
	errs := require(config.ResourceIdentifier.Resource, id.Child("resource"))
	errs = append(errs, require(config.ResourceIdentifier.Name, id.Child("name"))...)
	errs = append(errs, validateFeedbackRules(config.FeedbackRules, fldPath.Child("feedbackRules"))...)
	if config.FeedbackScrapeType != "" {
		errs = append(errs, validateEnum(config.FeedbackScrapeType, fldPath.Child("feedbackScrapeType"),
			work.FeedbackPollType, work.FeedbackWatchType)...)
	}
	errs = append(errs, validateUpdateStrategy(config.UpdateStrategy, fldPath.Child("updateStrategy"))...)
	return append(errs, validateConditionRules(config.ConditionRules, fldPath.Child("conditionRules"))...)
}

func validateFeedbackRules(rules []work.FeedbackRule, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
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
			errs = append(errs, validateJSONPath(path.Path, at.Child("path"))...)
		}
	}
	return errs
}

func validateJSONPath(path string, fldPath *field.Path) field.ErrorList {
	if path == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	if len(path) > maxExpressionLength {
		return field.ErrorList{field.TooLong(fldPath, "", maxExpressionLength)}
	}
	if err := jsonpath.New("").Parse("{" + path + "}"); err != nil {
		return field.ErrorList{field.Invalid(fldPath, path, "is no JSONPath: "+err.Error())}
	}
	return nil
}

func validateUpdateStrategy(strategy *work.UpdateStrategy, fldPath *field.Path) field.ErrorList {
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
		errs = append(errs, validateIgnoreField(&apply.IgnoreFields[i], conditions, fldPath.Child("ignoreFields").Index(i))...)
	}
	return errs
}

func validateIgnoreField(ignore *work.IgnoreField, conditions map[string]bool, fldPath *field.Path) field.ErrorList {
	// Without a condition the default applies, so two such entries are the same one.
	condition := ignore.Condition
	if condition == "" {
		condition = work.IgnoreFieldsConditionOnSpokePresent
	}
	errs := validateEnum(condition, fldPath.Child("condition"),
		work.IgnoreFieldsConditionOnSpokeChange, work.IgnoreFieldsConditionOnSpokePresent)
	errs = append(errs, validateUniqueName(string(condition), conditions, fldPath.Child("condition"))...)
	for i, path := range ignore.JSONPaths {
		errs = append(errs, validateJSONPath(path, fldPath.Child("jsonPaths").Index(i))...)
	}
	for i, pointer := range ignore.JSONPointers {
		if !strings.HasPrefix(pointer, "/") {
			errs = append(errs, field.Invalid(fldPath.Child("jsonPointers").Index(i), pointer, "must be a JSON pointer, which begins with /"))
		}
	}
	for i, expression := range ignore.JQPathExpressions {
		path := fldPath.Child("jqPathExpressions").Index(i)
		if len(expression) > maxExpressionLength {
			errs = append(errs, field.TooLong(path, "", maxExpressionLength))
		} else if err := compileJQ(expression); err != nil {
			errs = append(errs, field.Invalid(path, expression, "is no jq expression: "+err.Error()))
		}
	}
	return errs
}

// compileJQ compiles an expression, which also finds functions and variables that do
// not exist.
func compileJQ(expression string) error {
	query, err := gojq.Parse(expression)
	if err != nil {
		return err
	}
	_, err = gojq.Compile(query, gojq.WithEnvironLoader(func() []string { return nil }))
	return err
}
