package irsa

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/seed"
)

// account is a fake of the AWS resources in plans. Like AWS, it rejects calls that do not
// match the existing resources.
type account struct {
	role     *ObservedRole
	inline   map[string]string
	attached []string
	entry    *ObservedEntry
	// roleID changes with every created role. An entry refers to the role for which it was created.
	roleID, entryRoleID int
}

const foreignPolicy = `{"Version":"2012-10-17","Statement":[]}`

func (a *account) observe(roleName string) *Observed {
	observed := &Observed{}
	if a.role != nil {
		role := *a.role
		role.TrustPolicy, role.Tags = url.PathEscape(role.TrustPolicy), maps.Clone(role.Tags)
		role.AccessPolicy, role.Attached = url.PathEscape(a.inline[roleName]), a.attached
		for _, name := range slices.Sorted(maps.Keys(a.inline)) {
			if name != roleName {
				role.OtherInline = append(role.OtherInline, name)
			}
		}
		observed.Role = &role
	}
	if a.entry != nil {
		entry := *a.entry
		entry.Tags = maps.Clone(entry.Tags)
		observed.Entry = &entry
	}
	return observed
}

func (a *account) apply(call Call) error {
	iam := call.RoleName != ""
	if iam && (a.role == nil) != (call.Operation == CreateRole) {
		return fmt.Errorf("%s is not possible with role %v", call.Operation, a.role)
	}
	if !iam && (a.entry == nil) != (call.Operation == CreateAccessEntry) {
		return fmt.Errorf("%s is not possible with entry %v", call.Operation, a.entry)
	}
	switch call.Operation {
	case CreateRole:
		a.role, a.inline = &ObservedRole{TrustPolicy: call.Document, Tags: maps.Clone(call.Tags)}, map[string]string{}
		a.roleID++
	case UpdateAssumeRolePolicy:
		a.role.TrustPolicy = call.Document
	case PutRolePolicy:
		a.inline[call.PolicyName] = call.Document
	case TagRole:
		maps.Copy(a.role.Tags, call.Tags)
	case DetachRolePolicy:
		a.attached = slices.DeleteFunc(slices.Clone(a.attached), func(arn string) bool { return arn == call.PolicyARN })
	case DeleteRolePolicy:
		if _, found := a.inline[call.PolicyName]; !found {
			return fmt.Errorf("policy %s does not exist", call.PolicyName)
		}
		delete(a.inline, call.PolicyName)
	case DeleteRole:
		if len(a.inline)+len(a.attached) > 0 {
			return fmt.Errorf("the role still has policies")
		}
		a.role = nil
	case CreateAccessEntry:
		a.entry = &ObservedEntry{ARN: "entry-of-" + call.PrincipalARN, Type: call.EntryType, Username: call.Username, Groups: call.Groups, Tags: maps.Clone(call.Tags)}
		a.entryRoleID = a.roleID
	case UpdateAccessEntry:
		if a.entry.Type != accessEntryType {
			return fmt.Errorf("an entry of type %s has no groups", a.entry.Type)
		}
		a.entry.Username, a.entry.Groups = call.Username, call.Groups
	case TagAccessEntry:
		if call.EntryARN != a.entry.ARN {
			return fmt.Errorf("EntryARN = %q, want %q", call.EntryARN, a.entry.ARN)
		}
		maps.Copy(a.entry.Tags, call.Tags)
	case DeleteAccessEntry:
		a.entry = nil
	default:
		return fmt.Errorf("unknown operation %s", call.Operation)
	}
	return nil
}

// randomAccount returns an account with any subset of the desired resources and with every kind of
// drift.
func randomAccount(r *rand.Rand, d Desired) *account {
	a := &account{}
	chance := func() bool { return r.IntN(2) == 0 }
	tags := func() map[string]string {
		tags := map[string]string{"foreign": "stays"}
		for key, value := range d.Tags() {
			switch r.IntN(3) {
			case 0:
				tags[key] = value
			case 1:
				tags[key] = "wrong"
			}
		}
		return tags
	}
	if chance() {
		trusts := []string{
			d.HubTrustPolicy().JSON(),
			strings.Replace(d.HubTrustPolicy().JSON(), d.ManagedClusterRoleARN(), "AROAEXAMPLEID", 1),
			foreignPolicy,
		}
		a.role, a.inline = &ObservedRole{TrustPolicy: trusts[r.IntN(len(trusts))], Tags: tags()}, map[string]string{}
		if chance() {
			a.inline[d.HubRoleName()] = []string{d.HubAccessPolicy().JSON(), foreignPolicy}[r.IntN(2)]
		}
		if chance() {
			a.inline["foreign"] = foreignPolicy
		}
		if chance() {
			a.attached = []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"}
		}
	}
	if chance() {
		a.entry = &ObservedEntry{
			ARN: "entry-of-" + d.HubRoleARN(), Type: []string{accessEntryType, "EC2_LINUX"}[r.IntN(2)],
			Username: []string{d.Username(), "other"}[r.IntN(2)],
			Groups:   [][]string{d.Groups(), nil, {"system:masters"}, append(d.Groups(), "more")}[r.IntN(4)],
			Tags:     tags(),
		}
	}
	return a
}

func desiredExample() Desired {
	return Desired{Identity: example(), ManageRoles: true, Mapping: AccessEntry, ClusterName: "cluster1", ResourceTags: map[string]string{"team": "fleet"}}
}

func operations(calls []Call) (names []Operation) {
	for _, call := range calls {
		names = append(names, call.Operation)
	}
	return names
}

func TestPlansLeadToDesiredState(t *testing.T) {
	r := seed.Rand(t)
	for n := range 5000 {
		d := desiredExample()
		d.ManageRoles = r.IntN(4) > 0
		if r.IntN(4) == 0 {
			d.Mapping = ConfigMap
		}
		name := d.HubRoleName()
		a := randomAccount(r, d)
		before := a.observe(name)

		calls := PlanProvision(d, before)
		for _, call := range calls {
			if err := a.apply(call); err != nil {
				t.Fatalf("case %d: applying plan %v: %v", n, operations(calls), err)
			}
		}
		after := a.observe(name)
		if again := PlanProvision(d, after); len(again) > 0 {
			t.Fatalf("case %d: PlanProvision() after %v = %v, want no calls", n, operations(calls), operations(again))
		}
		if d.ManageRoles {
			if jsonText(t, a.role.TrustPolicy) != jsonText(t, d.HubTrustPolicy().JSON()) || a.inline[name] == "" ||
				jsonText(t, a.inline[name]) != jsonText(t, d.HubAccessPolicy().JSON()) || !contains(a.role.Tags, d.Tags()) {
				t.Fatalf("case %d: role, inline policies = %+v, %v, want the desired policies and tags", n, a.role, a.inline)
			}
			if before.Role != nil && (a.role.Tags["foreign"] != "stays" || !slices.Equal(after.Role.OtherInline, before.Role.OtherInline) || !slices.Equal(after.Role.Attached, before.Role.Attached)) {
				t.Fatalf("case %d: role = %+v, want the tags and policies of others in %+v", n, after.Role, before.Role)
			}
		} else if fmt.Sprint(after.Role) != fmt.Sprint(before.Role) {
			t.Fatalf("case %d: role after %v = %v, want the unchanged role %v of others", n, operations(calls), after.Role, before.Role)
		}
		if d.Mapping == AccessEntry {
			if a.entryRoleID != a.roleID {
				t.Fatalf("case %d: role ID of the entry after %v = %d, want %d", n, operations(calls), a.entryRoleID, a.roleID)
			}
			if a.entry.Type != accessEntryType || a.entry.Username != d.Username() || !slices.Equal(a.entry.Groups, d.Groups()) || !contains(a.entry.Tags, d.Tags()) {
				t.Fatalf("case %d: entry = %+v, want user %s, groups %v, type %s and tags %v", n, a.entry, d.Username(), d.Groups(), accessEntryType, d.Tags())
			}
		} else if fmt.Sprint(after.Entry) != fmt.Sprint(before.Entry) {
			t.Fatalf("case %d: entry after %v with mapping ConfigMap = %v, want the unchanged entry %v", n, operations(calls), after.Entry, before.Entry)
		}

		removal := PlanRemoval(d, after)
		for _, call := range removal {
			if err := a.apply(call); err != nil {
				t.Fatalf("case %d: applying removal %v: %v", n, operations(removal), err)
			}
		}
		if d.ManageRoles && a.role != nil || d.Mapping == AccessEntry && a.entry != nil {
			t.Fatalf("case %d: resources after %v = %+v, want none", n, operations(removal), a.observe(name))
		}
		if left := PlanRemoval(d, a.observe(name)); len(left) > 0 {
			t.Fatalf("case %d: PlanRemoval() after %v = %v, want no calls", n, operations(removal), operations(left))
		}
	}
}

// expected returns the resources that exist after provisioning, without changes by others.
func expected(desired Desired) *Observed {
	observed := &Observed{}
	if desired.ManageRoles {
		observed.Role = &ObservedRole{
			TrustPolicy:  desired.HubTrustPolicy().JSON(),
			AccessPolicy: desired.HubAccessPolicy().JSON(),
			Tags:         desired.Tags(),
		}
	}
	if desired.Mapping == AccessEntry {
		observed.Entry = &ObservedEntry{
			Type: accessEntryType, Username: desired.Username(), Groups: desired.Groups(), Tags: desired.Tags(),
		}
	}
	return observed
}

func TestPlanFromNothing(t *testing.T) {
	d := desiredExample()
	calls := PlanProvision(d, nil)
	if got := operations(calls); !slices.Equal(got, []Operation{CreateRole, PutRolePolicy, CreateAccessEntry}) {
		t.Errorf("PlanProvision(nil) = %v, want CreateRole, PutRolePolicy, CreateAccessEntry", got)
	}
	a := &account{}
	for _, call := range calls {
		if err := a.apply(call); err != nil {
			t.Fatal(err)
		}
	}
	if again := PlanProvision(d, expected(d)); len(again) > 0 {
		t.Errorf("PlanProvision(expected()) = %v, want no calls", operations(again))
	}
	if got := operations(PlanRemoval(d, expected(d))); !slices.Equal(got, []Operation{DeleteAccessEntry, DeleteRolePolicy, DeleteRole}) {
		t.Errorf("PlanRemoval(expected()) = %v, want DeleteAccessEntry, DeleteRolePolicy, DeleteRole", got)
	}
	if got := PlanRemoval(d, nil); len(got) > 0 {
		t.Errorf("PlanRemoval(nil) = %v, want no calls", operations(got))
	}
	d.ManageRoles = false
	if got := operations(PlanProvision(d, nil)); !slices.Equal(got, []Operation{CreateAccessEntry}) {
		t.Errorf("PlanProvision(nil) with a role of others = %v, want CreateAccessEntry", got)
	}
	d.ManageRoles, d.Mapping = true, ConfigMap
	if got := operations(PlanProvision(d, nil)); !slices.Equal(got, []Operation{CreateRole, PutRolePolicy}) {
		t.Errorf("PlanProvision(nil) with mapping ConfigMap = %v, want CreateRole, PutRolePolicy", got)
	}
}

func TestDriftIsRepairedByOneCallEach(t *testing.T) {
	for name, test := range map[string]struct {
		drift func(*Observed)
		want  []Operation
	}{
		"a principal that was deleted": {func(o *Observed) {
			o.Role.TrustPolicy = url.PathEscape(strings.Replace(o.Role.TrustPolicy, "arn:aws:iam::222222222222:role/"+example().ManagedClusterRoleName(), "AROAEXAMPLEID", 1))
		}, []Operation{UpdateAssumeRolePolicy}},
		"a trust policy that is not JSON":  {func(o *Observed) { o.Role.TrustPolicy = "%7B" }, []Operation{UpdateAssumeRolePolicy}},
		"a trust policy with a bad escape": {func(o *Observed) { o.Role.TrustPolicy = "%zz" }, []Operation{UpdateAssumeRolePolicy}},
		"another access policy":            {func(o *Observed) { o.Role.AccessPolicy = foreignPolicy }, []Operation{PutRolePolicy}},
		"no access policy":                 {func(o *Observed) { o.Role.AccessPolicy = "" }, []Operation{PutRolePolicy}},
		"a lost tag":                       {func(o *Observed) { delete(o.Role.Tags, TagHubName) }, []Operation{TagRole}},
		"wrong groups":                     {func(o *Observed) { o.Entry.Groups = []string{"system:masters"} }, []Operation{UpdateAccessEntry}},
		"a further group":                  {func(o *Observed) { o.Entry.Groups = append(o.Entry.Groups, "more") }, []Operation{UpdateAccessEntry}},
		"another user":                     {func(o *Observed) { o.Entry.Username = "x" }, []Operation{UpdateAccessEntry}},
		"another tag":                      {func(o *Observed) { o.Entry.Tags["team"] = "x" }, []Operation{TagAccessEntry}},
		"another type":                     {func(o *Observed) { o.Entry.Type = "EC2_LINUX" }, []Operation{DeleteAccessEntry, CreateAccessEntry}},
		"no role":                          {func(o *Observed) { o.Role = nil }, []Operation{CreateRole, PutRolePolicy, DeleteAccessEntry, CreateAccessEntry}},
		"no entry":                         {func(o *Observed) { o.Entry = nil }, []Operation{CreateAccessEntry}},
		"foreign tags":                     {func(o *Observed) { o.Role.Tags["x"], o.Entry.Tags["x"] = "y", "y" }, nil},
		"another form of the same policies": {func(o *Observed) {
			o.Role.AccessPolicy = url.PathEscape(`{ "Statement": {"Action": ["eks:ListClusters", "eks:DescribeCluster"], "Effect": "Allow",
				"Resource": ["arn:aws:eks:us-west-2:111111111111:cluster/hub-1"]}, "Version": "2012-10-17" }`)
			o.Role.TrustPolicy = strings.Replace(o.Role.TrustPolicy, `"sts:AssumeRole"`, `["sts:AssumeRole"]`, 1)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			observed := expected(desiredExample())
			test.drift(observed)
			if got := operations(PlanProvision(desiredExample(), observed)); !slices.Equal(got, test.want) {
				t.Errorf("PlanProvision() = %v, want %v", got, test.want)
			}
		})
	}
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

func jsonText(t *testing.T, document string) string {
	t.Helper()
	return fmt.Sprint(jsonValue(t, document))
}
