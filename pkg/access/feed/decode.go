package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// Decoded texts are kept, because most roles and bindings are the same in many clusters: shortTexts of at most
	// shortBytes, and longTexts of at most longBytes.
	shortTexts, shortBytes = 8192, 512
	longTexts, longBytes   = 1024, 16 << 10
)

// decoder decodes the content of RBAC objects. It is safe for concurrent use.
type decoder struct{ short, long *lru.Cache }

func newDecoder() *decoder { return &decoder{short: lru.New(shortTexts), long: lru.New(longTexts)} }

// known returns the cache for a text, or nil.
func (d *decoder) known(text string) *lru.Cache {
	switch {
	case len(text) <= shortBytes:
		return d.short
	case len(text) <= longBytes:
		return d.long
	}
	return nil
}

// decode returns the value of a JSON text, which callers must not change. Fields that this server does not know are an error, because they could
// restrict or extend the permissions.
func decode[T any](d *decoder, text string) (T, error) {
	var value T
	known := d.known(text)
	if known != nil {
		if found, ok := known.Get(text); ok {
			if value, ok = found.(T); ok {
				return value, nil
			}
		}
	}
	reader := json.NewDecoder(strings.NewReader(text))
	reader.DisallowUnknownFields()
	if err := reader.Decode(&value); err != nil {
		return value, fmt.Errorf("decode RBAC: %w", err)
	}
	if _, err := reader.Token(); !errors.Is(err, io.EOF) {
		return value, errors.New("decode RBAC: unexpected data after the value")
	}
	if known != nil {
		known.Add(strings.Clone(text), value)
	}
	return value, nil
}

// keyOf returns the key of a role or binding, and false for other resources.
func keyOf(properties query.Properties) (rbac.Key, bool) {
	if search.Text(properties, query.APIGroup) != rbacv1.GroupName {
		return rbac.Key{}, false
	}
	key := rbac.Key{Kind: search.Text(properties, query.Kind), Namespace: search.Text(properties, query.Namespace), Name: search.Text(properties, query.Name)}
	switch key.Kind {
	case rbac.KindRole, rbac.KindRoleBinding:
		return key, key.Namespace != "" && key.Name != ""
	case rbac.KindClusterRole, rbac.KindClusterRoleBinding:
		return key, key.Namespace == "" && key.Name != ""
	}
	return rbac.Key{}, false
}

func isRole(key rbac.Key) bool { return key.Kind == rbac.KindRole || key.Kind == rbac.KindClusterRole }

// text returns the text of an internal property, and whether it exists.
func text(internal query.Properties, name string) (string, bool) {
	p := internal.Get(name)
	if p == nil || p.Type != query.String {
		return "", false
	}
	return p.Leaves[0].Text, true
}

// put adds an object to an update. It returns an error if its content is missing or invalid.
func (d *decoder) put(u *access.Update, key rbac.Key, internal query.Properties) error {
	if isRole(key) {
		found, ok := text(internal, inventory.Rules)
		if !ok {
			return errMissing
		}
		rules, err := decode[[]rbacv1.PolicyRule](d, found)
		if err != nil {
			return err
		}
		u.Roles[key] = rules
		return nil
	}
	ref, hasRef := text(internal, inventory.RoleRef)
	subjects, hasSubjects := text(internal, inventory.Subjects)
	if !hasRef || !hasSubjects {
		return errMissing
	}
	var binding access.Binding
	var err error
	if binding.RoleRef, err = decode[rbacv1.RoleRef](d, ref); err != nil {
		return err
	}
	if binding.Subjects, err = decode[[]rbacv1.Subject](d, subjects); err != nil {
		return err
	}
	u.Bindings[key] = binding
	return nil
}

var errMissing = errors.New("the content of the object is not reported")

// report returns the AccessReport in internal properties, or nil if there is none or it is invalid.
func (d *decoder) report(internal query.Properties) *inventory.AccessReport {
	found, ok := text(internal, inventory.Access)
	if !ok {
		return nil
	}
	report := &inventory.AccessReport{}
	if json.Unmarshal([]byte(found), report) != nil {
		return nil
	}
	return report
}

func newUpdate(full bool) *access.Update {
	return &access.Update{Full: full, Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
}
