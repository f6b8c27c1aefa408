package validation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// maxProblem bounds the message about one expression, in bytes: the type checker repeats the
// expression for each mistake.
const maxProblem = 1024

// expressions validates the expressions of one ManifestWork, and bounds them together.
type expressions struct {
	number, length int
	// known are the expressions that were validated, with the outcome. The same
	// expression often occurs for many manifests.
	known map[string]error
}

func (e *expressions) validateManifestConfigs(configs []work.ManifestConfigOption, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range configs {
		errs = append(errs, e.validateManifestConfig(&configs[i], fldPath.Index(i))...)
	}
	if e.number > bounded.MaxExpressions {
		errs = append(errs, field.Invalid(fldPath, field.OmitValueType{}, fmt.Sprintf("contains %d different expressions, at most %d are allowed in a ManifestWork", e.number, bounded.MaxExpressions)))
	}
	if e.length > bounded.MaxTotalLength {
		errs = append(errs, field.Invalid(fldPath, field.OmitValueType{}, fmt.Sprintf("contains different expressions of %d bytes in total, at most %d are allowed in a ManifestWork", e.length, bounded.MaxTotalLength)))
	}
	return errs
}

// validate checks an expression unless the limits are exceeded already. key is the expression
// with its language.
func (e *expressions) validate(key, text string, fldPath *field.Path, problem string, check func() error) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	if len(text) > bounded.MaxLength {
		return field.ErrorList{field.TooLong(fldPath, "", bounded.MaxLength)}
	}
	err, known := e.known[key]
	if !known {
		e.number++
		e.length += len(text)
		if e.number > bounded.MaxExpressions || e.length > bounded.MaxTotalLength {
			return nil
		}
		err = check()
		if e.known == nil {
			e.known = map[string]error{}
		}
		e.known[key] = err
	}
	if err != nil {
		detail := err.Error()
		if len(detail) > maxProblem {
			detail = strings.ToValidUTF8(detail[:maxProblem], "") + "..."
		}
		return field.ErrorList{field.Invalid(fldPath, text, problem+": "+detail)}
	}
	return nil
}
