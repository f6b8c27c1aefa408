package clusterpermission

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/validation"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/escalation"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

const (
	// proposalLimitBytes is the default limit of request bodies.
	proposalLimitBytes = 3 << 20
	// proposalUID is the UID of a proposal that is not stored.
	proposalUID types.UID = "00000000-0000-0000-0000-000000000000"
)

// strictCodecs refuse unknown and duplicate fields, because users send a proposal to check it.
var strictCodecs = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)

// renderedREST serves clusterpermissions/rendered: GET returns the ManifestWork of the stored object,
// and POST the ManifestWork of the ClusterPermission in the body. Neither writes anything. It is a
// rest.Connecter because the groups of the request and the response differ.
type renderedREST struct {
	definition.Base
	store    *definition.REST
	grants   *grants
	delivery delivery
}

var (
	_ rest.Connecter       = &renderedREST{}
	_ rest.StorageMetadata = &renderedREST{}
)

// ConnectMethods implements rest.Connecter.
func (r *renderedREST) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// NewConnectOptions implements rest.Connecter.
func (r *renderedREST) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// ProducesMIMETypes implements rest.StorageMetadata.
func (r *renderedREST) ProducesMIMETypes(string) []string {
	return []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}
}

// ProducesObject implements rest.StorageMetadata.
func (r *renderedREST) ProducesObject(string) any { return workv1.ManifestWork{} }

// Connect implements rest.Connecter.
func (r *renderedREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		permission, err := r.subject(ctx, name, w, req)
		if err != nil {
			responder.Error(err)
			return
		}
		work, err := r.delivery.work(ctx, permission, false)
		if err == nil && work == nil {
			err = nothingToDeliver(permission)
		}
		if err != nil {
			responder.Error(err)
			return
		}
		responsewriters.WriteObjectNegotiated(scheme.Codecs, negotiation.DefaultEndpointRestrictions, workv1.SchemeGroupVersion, w, req, http.StatusOK, work, false)
	}), nil
}

// subject returns the ClusterPermission to render.
func (r *renderedREST) subject(ctx context.Context, name string, w http.ResponseWriter, req *http.Request) (*rbac.ClusterPermission, error) {
	obj, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil && (req.Method == http.MethodGet || !apierrors.IsNotFound(err)) {
		return nil, err
	}
	permission, _ := obj.(*rbac.ClusterPermission) // nil if it does not exist
	if req.Method != http.MethodGet {
		proposal, err := decodeProposal(w, req)
		if err != nil {
			return nil, err
		}
		if err := r.checkProposal(ctx, name, proposal, permission); err != nil {
			return nil, err
		}
		permission = proposal
	}
	return permission, r.checkReads(ctx, permission)
}

// checkReads refuses to show hub roles that the caller may not read, and the names of hub namespaces
// that the caller may not list.
func (r *renderedREST) checkReads(ctx context.Context, c *rbac.ClusterPermission) error {
	permission := versioned(c)
	if spec, _ := permission.Delivered(); spec != nil {
		if err := escalation.Reads(ctx, r.grants.authorizer, c.Name, ptr.Deref(spec.RoleRefs, nil)); err != nil {
			return err
		}
	}
	if r.grants.hubNamespaces && render.HasSelectors(permission) {
		return escalation.ReadsNamespaces(ctx, r.grants.authorizer, c.Name)
	}
	return nil
}

// decodeProposal decodes a ClusterPermission in JSON or YAML. It ignores Content-Type, because kubectl
// sends files unchanged.
func decodeProposal(w http.ResponseWriter, req *http.Request) (*rbac.ClusterPermission, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, proposalLimitBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", tooLarge.Limit))
	}
	if err == nil {
		body, err = singleDocument(body)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	obj, gvk, err := strictCodecs.UniversalDecoder(rbacv1alpha1.SchemeGroupVersion).Decode(body, nil, nil)
	proposal, ok := obj.(*rbacv1alpha1.ClusterPermission)
	if gvk != nil && (err != nil && runtime.IsNotRegisteredError(err) || err == nil && !ok) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body must be a ClusterPermission of %[3]s, not a %[1]s of %[2]s",
			gvk.Kind, gvk.GroupVersion(), rbacv1alpha1.SchemeGroupVersion))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is not a ClusterPermission: %v", err))
	}
	return (*rbac.ClusterPermission)(proposal), nil
}

// singleDocument returns the only YAML document of a body. It refuses several documents, because the
// others would not be rendered.
func singleDocument(body []byte) ([]byte, error) {
	var found [][]byte
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(body))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil || content != nil {
			found = append(found, document)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it contains %d documents, want one ClusterPermission", len(found))
	}
	return found[0], nil
}

// checkProposal completes a proposal and checks it like a write. Grants that the caller may not make
// are warnings, since nothing is granted yet.
func (r *renderedREST) checkProposal(ctx context.Context, name string, proposal, stored *rbac.ClusterPermission) error {
	namespace := request.NamespaceValue(ctx)
	if proposal.Namespace == "" {
		proposal.Namespace = namespace
	}
	if proposal.Name == "" {
		proposal.Name = name
	}
	var errs field.ErrorList
	if proposal.Namespace != namespace {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "namespace"), proposal.Namespace, "must be the namespace in the URL"))
	}
	if proposal.Name != name {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), proposal.Name, "must be the name in the URL"))
	}
	proposal.Status = rbacv1alpha1.ClusterPermissionStatus{}
	if stored != nil {
		proposal.UID = stored.UID
		errs = append(errs, validation.ClusterPermission.Update(proposal, stored)...)
	} else {
		proposal.UID = proposalUID
		errs = append(errs, validation.ClusterPermission.New(proposal)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(kind, name, errs)
	}
	if _, err := r.delivery.check(ctx, proposal, stored); err != nil {
		return err
	}
	for _, text := range validation.WarningsForClusterPermission(proposal) {
		warning.AddWarning(ctx, "", text)
	}
	return r.grants.decide(ctx, proposal, stored).answer(ctx, false)
}
