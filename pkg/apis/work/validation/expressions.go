package validation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// maxDetail bounds the message about one expression, in bytes: the type checker repeats the
// expression for each mistake.
const maxDetail = 1024

// expressions validates the expressions of one ManifestWork and bounds their total.
type expressions struct {
	number, length int
	// known maps each validated expression to its error. The same expression often occurs for many manifests.
	known map[string]error
}

func (e *expressions) validateManifestConfigs(configs []workv1.ManifestConfigOption, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range configs {
		errs = append(errs, e.validateManifestConfig(&configs[i], fldPath.Index(i))...)
	}
	if e.number > bounded.MaxExpressions {
		errs = append(errs, field.Invalid(fldPath, field.OmitValueType{}, fmt.Sprintf("must contain at most %d different expressions in total, found %d", bounded.MaxExpressions, e.number)))
	}
	if e.length > bounded.MaxTotalLength {
		errs = append(errs, field.Invalid(fldPath, field.OmitValueType{}, fmt.Sprintf("must contain different expressions of at most %d bytes in total, found %d bytes", bounded.MaxTotalLength, e.length)))
	}
	return errs
}

// validate checks an expression unless the limits are already exceeded. key consists of the
// expression and its language.
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
		e.known[key] = err
	}
	if err == nil {
		return nil
	}
	detail := err.Error()
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "..."
	}
	return field.ErrorList{field.Invalid(fldPath, text, problem+": "+detail)}
}
