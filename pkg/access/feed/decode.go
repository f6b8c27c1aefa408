package feed

import (
	"encoding/json"
	"errors"
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

// Decoded texts of at most maxText bytes are kept, because most roles and bindings are the same in many clusters.
const maxTexts, maxText = 2048, 16 << 10

// decoder decodes the content of RBAC objects. It is safe for concurrent use.
type decoder struct{ known *lru.Cache }

func newDecoder() *decoder { return &decoder{lru.New(maxTexts)} }

// decode returns the value of a JSON text in an internal property, which callers must not change. Fields that this server
// does not know make it invalid, because they could restrict or extend the permissions.
func decode[T any](d *decoder, internal query.Properties, name string) (value T, ok bool) {
	encoded, ok := text(internal, name)
	if !ok {
		return value, false
	}
	if found, ok := d.known.Get(encoded); ok {
		if value, ok = found.(T); ok {
			return value, true
		}
	}
	reader := json.NewDecoder(strings.NewReader(encoded))
	reader.DisallowUnknownFields()
	if reader.Decode(&value) != nil {
		return value, false
	}
	if _, err := reader.Token(); !errors.Is(err, io.EOF) {
		return value, false
	}
	if len(encoded) <= maxText {
		d.known.Add(strings.Clone(encoded), value)
	}
	return value, true
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

// put adds an object to an update. It returns false if its content is missing or invalid.
func (d *decoder) put(u *access.Update, key rbac.Key, internal query.Properties) bool {
	if isRole(key) {
		rules, ok := decode[[]rbacv1.PolicyRule](d, internal, inventory.Rules)
		if ok {
			u.Roles[key] = rules
		}
		return ok
	}
	ref, hasRef := decode[rbacv1.RoleRef](d, internal, inventory.RoleRef)
	subjects, hasSubjects := decode[[]rbacv1.Subject](d, internal, inventory.Subjects)
	if hasRef && hasSubjects {
		u.Bindings[key] = access.Binding{RoleRef: ref, Subjects: subjects}
	}
	return hasRef && hasSubjects
}

// report returns the AccessReport in internal properties, or nil if there is none or it is invalid.
func (d *decoder) report(internal query.Properties) *inventory.AccessReport {
	found, ok := text(internal, inventory.Access)
	report := &inventory.AccessReport{}
	if !ok || json.Unmarshal([]byte(found), report) != nil {
		return nil
	}
	return report
}
