package fleetreview

import (
	"encoding/base64"
	"fmt"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// The limits of a review.
const (
	defaultLimit    = int32(100)
	maxLimit        = 1000
	maxNames        = 1000
	maxSets         = 100
	maxGroups       = 100
	maxExtra        = 100
	maxRequirements = 100
	maxText         = 1024
)

var spec = field.NewPath("spec")

// validateRequest checks what all reviews have in common, and returns the attributes and the decoded position.
// Attributes are nil if the review has none.
func validateRequest(r *accessv1alpha1.AccessRequest, page *accessv1alpha1.Page, clusters *accessv1alpha1.ClusterSelection, optional bool) (*access.Attributes, string, field.ErrorList) {
	var errs field.ErrorList
	var a *access.Attributes
	resource, path := r.ResourceAttributes, r.NonResourceAttributes
	switch {
	case resource != nil && path != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), path.Path, "cannot be specified in combination with resourceAttributes"))
	case resource != nil:
		at := spec.Child("resourceAttributes")
		errs = append(errs, required(at.Child("verb"), resource.Verb)...)
		errs = append(errs, required(at.Child("resource"), resource.Resource)...)
		for _, f := range []struct{ name, text string }{
			{"group", resource.Group}, {"version", resource.Version}, {"subresource", resource.Subresource}, {"namespace", resource.Namespace}, {"name", resource.Name},
		} {
			errs = append(errs, bounded(at.Child(f.name), f.text)...)
		}
		a = &access.Attributes{
			Verb: resource.Verb, Group: resource.Group, Resource: resource.Resource, Subresource: resource.Subresource, Namespace: resource.Namespace, Name: resource.Name,
		}
	case path != nil:
		at := spec.Child("nonResourceAttributes")
		errs = append(errs, required(at.Child("path"), path.Path)...)
		errs = append(errs, required(at.Child("verb"), path.Verb)...)
		a = &access.Attributes{Verb: path.Verb, NonResource: true, Path: path.Path}
	case !optional:
		errs = append(errs, field.Required(spec.Child("resourceAttributes"), "exactly one of resourceAttributes and nonResourceAttributes must be specified"))
	}
	if page.Limit != nil && (*page.Limit < 1 || *page.Limit > maxLimit) {
		errs = append(errs, field.Invalid(spec.Child("limit"), *page.Limit, fmt.Sprintf("must be between 1 and %d", maxLimit)))
	}
	after, err := base64.RawURLEncoding.DecodeString(page.Continue)
	if err != nil || len(page.Continue) > 4*maxText {
		errs = append(errs, field.Invalid(spec.Child("continue"), rbac.Clip(page.Continue, maxText), "must be status.continue of the previous response"))
	}
	return a, string(after), append(errs, validateClusters(clusters, spec.Child("clusters"))...)
}

func validateClusters(clusters *accessv1alpha1.ClusterSelection, at *field.Path) field.ErrorList {
	errs := boundedList(at.Child("names"), clusters.Names, maxNames)
	errs = append(errs, boundedList(at.Child("clusterSets"), clusters.ClusterSets, maxSets)...)
	selector := clusters.LabelSelector
	if selector == nil {
		return errs
	}
	values := len(selector.MatchLabels)
	for i := range selector.MatchExpressions {
		values += 1 + len(selector.MatchExpressions[i].Values)
	}
	if values > maxRequirements {
		return append(errs, field.TooMany(at.Child("labelSelector"), values, maxRequirements))
	}
	return append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
}

// validateSubject checks the subject of a FleetAccessReview.
func validateSubject(s *accessv1alpha1.FleetAccessReviewSpec) field.ErrorList {
	errs := bounded(spec.Child("user"), s.User)
	errs = append(errs, boundedList(spec.Child("groups"), s.Groups, maxGroups)...)
	if len(s.Extra) > maxExtra {
		errs = append(errs, field.TooMany(spec.Child("extra"), len(s.Extra), maxExtra))
	}
	if account := s.ServiceAccount; account != nil {
		at := spec.Child("serviceAccount")
		if s.User != "" || len(s.Groups) > 0 {
			errs = append(errs, field.Forbidden(at, "cannot be specified in combination with user and groups"))
		}
		errs = append(errs, required(at.Child("cluster"), account.Cluster)...)
		errs = append(errs, required(at.Child("namespace"), account.Namespace)...)
		return append(errs, required(at.Child("name"), account.Name)...)
	}
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Required(spec.Child("user"), "at least one of user, groups and serviceAccount must be specified"))
	}
	return errs
}

func required(at *field.Path, text string) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return bounded(at, text)
}

func bounded(at *field.Path, text string) field.ErrorList {
	if len(text) > maxText {
		return field.ErrorList{field.TooLong(at, "", maxText)}
	}
	return nil
}

func boundedList(at *field.Path, list []string, most int) field.ErrorList {
	if len(list) > most {
		return field.ErrorList{field.TooMany(at, len(list), most)}
	}
	var errs field.ErrorList
	for i, text := range list {
		errs = append(errs, bounded(at.Index(i), text)...)
	}
	return errs
}

func continueAfter(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

const (
	userPrefix  = "user:"
	groupPrefix = "group:"
)

// continueAfterSubject returns a token of bounded length: clusters report names of any length.
func continueAfterSubject(s rbac.Subject) string {
	s = access.Position(s)
	if s.Group {
		return continueAfter(groupPrefix + s.Name)
	}
	return continueAfter(userPrefix + s.Name)
}

// subjectAfter returns the subject at which the previous page ended, or nil for the first page.
func subjectAfter(token string) (*rbac.Subject, *field.Error) {
	if token == "" {
		return nil, nil
	}
	if name, ok := strings.CutPrefix(token, groupPrefix); ok {
		return &rbac.Subject{Group: true, Name: name}, nil
	}
	if name, ok := strings.CutPrefix(token, userPrefix); ok {
		return &rbac.Subject{Name: name}, nil
	}
	return nil, field.Invalid(spec.Child("continue"), rbac.Clip(token, maxText), "must be status.continue of the previous response")
}
