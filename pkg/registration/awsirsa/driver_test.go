package awsirsa

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// records stores one registration.
type records struct {
	registration.Records
	mu     sync.Mutex
	record *registerv1alpha1.ManagedClusterRegistration
	writes int
}

func (r *records) Update(_ context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.record == nil || r.record.Name != cluster {
		return nil, apierrors.NewNotFound(registerv1alpha1.Resource("managedclusters"), cluster)
	}
	update := r.record.DeepCopy()
	if err := change(update); err != nil {
		return nil, err
	}
	r.record = update
	r.writes++
	return update.DeepCopy(), nil
}

func (r *records) read() *registerv1alpha1.ManagedClusterRegistration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.DeepCopy()
}

// cloud is a fake Cloud that stores roles, access entries and its calls.
type cloud struct {
	roles, entries map[string]bool
	asked          []string
	records        *records
	before         func(operation string) error
	problem        string
	t              *testing.T
}

func (c *cloud) CheckAccessEntries(context.Context, irsa.ARN) (string, error) { return c.problem, nil }

func (c *cloud) Provision(_ context.Context, desired irsa.Desired, fresh bool) error {
	if !c.records.read().Status.IRSA.Provisioned {
		c.t.Error("provisioned in the registration at Provision() = false, want true")
	}
	operation := "verify"
	if fresh {
		operation = "create"
	}
	c.asked = append(c.asked, operation)
	if desired.ManageRoles {
		c.roles[desired.HubRoleName()] = true
	}
	if c.before != nil {
		if err := c.before(operation); err != nil {
			return err
		}
	}
	if desired.Mapping == irsa.AccessEntry {
		c.entries[desired.HubRoleName()] = true
	}
	return nil
}

func (c *cloud) Remove(_ context.Context, desired irsa.Desired) error {
	if !c.records.read().Status.IRSA.Provisioned {
		c.t.Error("provisioned in the registration at Remove() = false, want true")
	}
	c.asked = append(c.asked, "remove")
	if c.before != nil {
		if err := c.before("remove"); err != nil {
			return err
		}
	}
	if desired.Mapping == irsa.AccessEntry {
		delete(c.entries, desired.HubRoleName())
	}
	if desired.ManageRoles {
		delete(c.roles, desired.HubRoleName())
	}
	return nil
}

type setting struct {
	t       *testing.T
	records *records
	cloud   *cloud
	hub     *fake.Clientset
	options Options
}

const foreign = "- rolearn: arn:aws:iam::111122223333:role/nodes\n  username: nodes\n  groups:\n  - system:nodes\n"

func newSetting(t *testing.T) *setting {
	t.Helper()
	s := &setting{t: t, hub: fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"},
		Data:       map[string]string{"mapRoles": foreign, "mapUsers": "- userarn: arn:aws:iam::1:user/a\n", "other": "kept"},
	})}
	s.records = &records{record: &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: types.UID("record")},
		Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			Driver: registerv1alpha1.DriverAWSIRSA, IRSA: &registerv1alpha1.IRSAClaim{ManagedClusterARN: "arn:aws:eks:us-east-1:444455556666:cluster/managed"},
		},
	}}
	s.cloud = &cloud{t: t, roles: map[string]bool{}, entries: map[string]bool{}, records: s.records}
	s.options = Options{
		HubARN:  irsa.ARN{Partition: "aws", Region: "us-east-1", AccountID: "111122223333", ClusterName: "hub"},
		Mapping: irsa.AccessEntry, ManageRoles: true, Cloud: s.cloud, Hub: s.hub, Records: s.records,
	}
	return s
}

func (s *setting) driver(change ...func(*Options)) *Driver {
	s.t.Helper()
	for _, change := range change {
		change(&s.options)
	}
	return New(s.options)
}

func (s *setting) provision(d *Driver, verify bool) {
	s.t.Helper()
	if err := d.Provision(s.t.Context(), s.records.read(), verify); err != nil {
		s.t.Fatal(err)
	}
}

func (s *setting) revoke(d *Driver) {
	s.t.Helper()
	if err := d.Revoke(s.t.Context(), s.records.read()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *setting) awsAuth() *corev1.ConfigMap {
	s.t.Helper()
	auth, err := s.hub.CoreV1().ConfigMaps("kube-system").Get(s.t.Context(), "aws-auth", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return auth
}

// has checks the number of roles and entries in AWS and the mapping in the ConfigMap.
func (s *setting) has(roles, entries int, mapped bool) {
	s.t.Helper()
	if len(s.cloud.roles) != roles || len(s.cloud.entries) != entries {
		s.t.Errorf("number of roles, access entries = %d, %d, want %d, %d", len(s.cloud.roles), len(s.cloud.entries), roles, entries)
	}
	auth := s.awsAuth()
	if got := strings.Contains(auth.Data["mapRoles"], "system:open-cluster-management:cluster1"); got != mapped {
		s.t.Errorf("mapRoles contains the role = %t, want %t:\n%s", got, mapped, auth.Data["mapRoles"])
	}
	if !strings.HasPrefix(auth.Data["mapRoles"], foreign) || auth.Data["other"] != "kept" || auth.Data["mapUsers"] == "" {
		s.t.Errorf("data of aws-auth = %v, want the entries of others unchanged", auth.Data)
	}
}

func mapped(o *Options)   { o.Mapping = irsa.ConfigMap }
func entered(o *Options)  { o.Mapping = irsa.AccessEntry }
func preMade(o *Options)  { o.ManageRoles = false }
func ourRoles(o *Options) { o.ManageRoles = true }

func TestProvisionAndRevoke(t *testing.T) {
	s := newSetting(t)
	d := s.driver()
	if why := d.Refuses(s.records.read()); why != "" {
		t.Errorf("Refuses() with a claim = %q, want an empty string", why)
	}
	s.provision(d, true)
	s.has(1, 1, false)
	writes := s.records.writes
	s.provision(d, false)
	if s.records.writes != writes || len(s.hub.Actions()) != 1 {
		t.Errorf("writes, hub requests of a repeated Provision() = %d, %v, want %d and no new request", s.records.writes, s.hub.Actions(), writes)
	}
	s.provision(d, true)
	// Changed options, for example tags, are applied once.
	d = s.driver(func(o *Options) { o.ResourceTags = map[string]string{"team": "fleet"} })
	s.provision(d, false)
	s.provision(d, false)
	s.revoke(d)
	s.has(0, 0, false)
	s.revoke(d)
	if want := []string{"create", "verify", "verify", "remove"}; !slices.Equal(s.cloud.asked, want) {
		t.Errorf("calls of the Cloud = %v, want %v", s.cloud.asked, want)
	}
	s.provision(d, false)
	if last := s.cloud.asked[len(s.cloud.asked)-1]; last != "create" {
		t.Errorf("call of the Cloud after the removal = %s, want create", last)
	}
}

// After a failed Provision, Revoke removes the created resources, even if the options have changed.
func TestRevokeAfterAFailedProvision(t *testing.T) {
	for name, change := range map[string][]func(*Options){
		"with the same options":          {},
		"with another mapping":           {mapped},
		"with roles of an administrator": {preMade},
		"with other tags":                {func(o *Options) { o.ResourceTags = map[string]string{"team": "fleet"} }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetting(t)
			s.cloud.before = func(string) error { return errors.New("ServiceFailure") }
			if err := s.driver().Provision(t.Context(), s.records.read(), true); err == nil || !strings.Contains(err.Error(), "ServiceFailure") {
				t.Fatalf("Provision() with a failing Cloud = %v, want ServiceFailure", err)
			}
			s.has(1, 0, false)
			s.cloud.before = nil
			s.revoke(s.driver(change...))
			s.has(0, 0, false)
			if state := s.records.read().Status.IRSA; state.Provisioned || state.AppliedHash != "" {
				t.Errorf("status.irsa after Revoke() = %+v, want nothing provisioned", state)
			}
		})
	}
}

// If another server revokes during Provision, the registration records the new resources, and
// Revoke removes them.
func TestRevokeDuringProvision(t *testing.T) {
	s := newSetting(t)
	d := s.driver()
	s.cloud.before = func(string) error {
		s.cloud.before = nil
		return d.Revoke(t.Context(), s.records.read())
	}
	if err := d.Provision(t.Context(), s.records.read(), true); err != nil {
		t.Fatal(err)
	}
	s.has(0, 1, false)
	if !s.records.read().Status.IRSA.Provisioned {
		t.Fatal("provisioned in the registration after Provision() = false, want true")
	}
	s.revoke(d)
	s.has(0, 0, false)
}

func TestMappings(t *testing.T) {
	s := newSetting(t)
	s.provision(s.driver(mapped), false)
	s.has(1, 0, true)
	s.provision(s.driver(entered), false)
	s.has(1, 1, false)
	s.provision(s.driver(mapped), false)
	s.has(1, 0, true)

	// If a change of the mapping fails, Revoke removes both mappings.
	s.cloud.before = func(operation string) error {
		if operation == "verify" {
			s.cloud.entries = maps.Clone(s.cloud.roles)
			return errors.New("ServiceFailure")
		}
		return nil
	}
	if err := s.driver(entered).Provision(t.Context(), s.records.read(), false); err == nil || !strings.Contains(err.Error(), "ServiceFailure") {
		t.Fatalf("Provision() with a failing Cloud = %v, want ServiceFailure", err)
	}
	s.has(1, 1, true)
	s.revoke(s.driver(mapped))
	s.has(0, 0, false)
}

// A role of an administrator is not removed.
func TestRolesOfAnAdministrator(t *testing.T) {
	s := newSetting(t)
	d := s.driver(preMade)
	identity := irsa.Identity{Hub: s.options.HubARN, Managed: irsa.ARN{Partition: "aws", Region: "us-east-1", AccountID: "444455556666", ClusterName: "managed"}}
	s.cloud.roles[identity.HubRoleName()] = true
	s.provision(d, false)
	s.has(1, 1, false)
	s.revoke(s.driver(ourRoles))
	s.has(1, 0, false)
}

func TestRefuses(t *testing.T) {
	s := newSetting(t)
	d := s.driver()
	for name, test := range map[string]struct {
		change func(*registerv1alpha1.ManagedClusterRegistration)
		why    string
	}{
		"no claim":          {func(r *registerv1alpha1.ManagedClusterRegistration) { r.Spec.IRSA = nil }, "has not claimed"},
		"a withdrawn claim": {func(r *registerv1alpha1.ManagedClusterRegistration) { r.Spec.IRSA.Withdrawn = true }, "withdrawn"},
		"no ARN":            {func(r *registerv1alpha1.ManagedClusterRegistration) { r.Spec.IRSA.ManagedClusterARN = "arn:aws:eks" }, "ARN"},
		"another partition": {func(r *registerv1alpha1.ManagedClusterRegistration) {
			r.Spec.IRSA.ManagedClusterARN = "arn:aws-cn:eks:cn-north-1:444455556666:cluster/managed"
		}, "partition"},
		"another hub": {func(r *registerv1alpha1.ManagedClusterRegistration) {
			r.Status.IRSA = &registerv1alpha1.IRSAStatus{Provisioned: true, HubRoleARN: "arn:aws:iam::999988887777:role/ocm-hub-x"}
		}, "ocm-hub-x"},
	} {
		t.Run(name, func(t *testing.T) {
			record := s.records.read()
			test.change(record)
			if why := d.Refuses(record); !strings.Contains(why, test.why) {
				t.Errorf("Refuses() = %q, want a reason that contains %q", why, test.why)
			}
			if err := d.Provision(t.Context(), record, true); err == nil || !strings.Contains(err.Error(), test.why) {
				t.Errorf("Provision() = %v, want an error that contains %q", err, test.why)
			}
			if len(s.cloud.asked) > 0 {
				t.Errorf("calls of the Cloud = %v, want none", s.cloud.asked)
			}
		})
	}
	// Revoke does not forget resources that this hub cannot find.
	lost := s.records.read()
	lost.Status.IRSA = &registerv1alpha1.IRSAStatus{Provisioned: true, HubRoleARN: "arn:aws:iam::999988887777:role/ocm-hub-x"}
	if err := d.Revoke(t.Context(), lost); err == nil || !strings.Contains(err.Error(), "ocm-hub-x") {
		t.Errorf("Revoke() of resources of another hub = %v, want an error that contains the role", err)
	}
}

// If the claim has changed since it was read, Provision creates nothing.
func TestOutdatedClaim(t *testing.T) {
	for name, change := range map[string]func(*registerv1alpha1.ManagedClusterRegistration){
		"withdrawn": func(r *registerv1alpha1.ManagedClusterRegistration) { r.Spec.IRSA.Withdrawn = true },
		"replaced":  func(r *registerv1alpha1.ManagedClusterRegistration) { r.UID = "another" },
		"ended":     func(r *registerv1alpha1.ManagedClusterRegistration) { r.Spec.IRSA = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetting(t)
			d := s.driver()
			read := s.records.read()
			change(s.records.record)
			if err := d.Provision(t.Context(), read, false); err == nil || len(s.cloud.asked) > 0 {
				t.Errorf("Provision() = %v with calls %v, want an error and no calls", err, s.cloud.asked)
			}
		})
	}
}

func TestConfigMap(t *testing.T) {
	t.Run("it is created", func(t *testing.T) {
		s := newSetting(t)
		if err := s.hub.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "aws-auth", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		d := s.driver(mapped)
		s.provision(d, false)
		auth, err := s.hub.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "aws-auth", metav1.GetOptions{})
		if err != nil || !strings.Contains(auth.Data["mapRoles"], "system:open-cluster-management:cluster1") {
			t.Errorf("ConfigMap aws-auth after Provision() = %v, %v, want the mapping of cluster1", auth, err)
		}
		if err := s.hub.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "aws-auth", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.revoke(d)
		if _, err := s.hub.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "aws-auth", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get(aws-auth) after Revoke() = %v, want not found", err)
		}
	})
	t.Run("a verification repairs it", func(t *testing.T) {
		s := newSetting(t)
		d := s.driver(mapped)
		s.provision(d, false)
		for _, roles := range []string{foreign, strings.ReplaceAll(s.awsAuth().Data["mapRoles"], "system:open-cluster-management:cluster1", "system:masters")} {
			auth := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}, Data: map[string]string{"mapRoles": roles, "mapUsers": "[]", "other": "kept"}}
			if _, err := s.hub.CoreV1().ConfigMaps("kube-system").Update(t.Context(), auth, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			s.provision(d, true)
			s.has(1, 0, true)
			if strings.Contains(s.awsAuth().Data["mapRoles"], "system:masters") {
				t.Errorf("mapRoles after a verification = %s, want only the groups of the cluster", s.awsAuth().Data["mapRoles"])
			}
		}
	})
	t.Run("it is edited concurrently", func(t *testing.T) {
		s := newSetting(t)
		conflicts := 0
		s.hub.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			if conflicts++; conflicts > 3 {
				return false, nil, nil
			}
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "aws-auth", errors.New("changed"))
		})
		s.provision(s.driver(mapped), false)
		s.has(1, 0, true)
	})
	t.Run("it cannot be parsed", func(t *testing.T) {
		s := newSetting(t)
		broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}, Data: map[string]string{"mapRoles": "- rolearn: ["}}
		if _, err := s.hub.CoreV1().ConfigMaps("kube-system").Update(t.Context(), broken, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		err := s.driver(mapped).Provision(t.Context(), s.records.read(), false)
		if err == nil || !strings.Contains(err.Error(), "kube-system/aws-auth") || !strings.Contains(err.Error(), "mapRoles") {
			t.Errorf("Provision() = %v, want an error that names kube-system/aws-auth and mapRoles", err)
		}
		auth, err := s.hub.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "aws-auth", metav1.GetOptions{})
		if err != nil || auth.Data["mapRoles"] != "- rolearn: [" {
			t.Errorf("data of aws-auth = %v, %v, want the unchanged data", auth.Data, err)
		}
		if !s.records.read().Status.IRSA.Provisioned {
			t.Error("provisioned in the registration = false, want true")
		}
	})
}

func TestCheck(t *testing.T) {
	forbid := func(verb string) func(*setting) {
		return func(s *setting) {
			s.hub.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "aws-auth", errors.New("no Role"))
			})
		}
	}
	edit := func(data map[string]string) func(*setting) {
		return func(s *setting) {
			auth := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}, Data: data}
			if _, err := s.hub.CoreV1().ConfigMaps("kube-system").Update(t.Context(), auth, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(s *setting) {
		if err := s.hub.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "aws-auth", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		mapping irsa.Mapping
		change  func(*setting)
		want    []string // parts of the only problem; empty for no problem
	}{
		"access entries":          {irsa.AccessEntry, func(*setting) {}, nil},
		"no access entries":       {irsa.AccessEntry, func(s *setting) { s.cloud.problem = "no EKS" }, []string{"no EKS"}},
		"the ConfigMap":           {irsa.ConfigMap, func(*setting) {}, nil},
		"no ConfigMap":            {irsa.ConfigMap, remove, nil},
		"no access to AWS":        {irsa.ConfigMap, func(s *setting) { s.cloud.problem = "no EKS" }, nil},
		"an invalid ConfigMap":    {irsa.ConfigMap, edit(map[string]string{"mapRoles": "{"}), []string{"ConfigMap kube-system/aws-auth", "mapRoles cannot be parsed", "correct it manually"}},
		"no permission to read":   {irsa.ConfigMap, forbid("get"), []string{"ConfigMap kube-system/aws-auth", "forbidden", "artifacts/deploy/components/aws-auth"}},
		"no permission to write":  {irsa.ConfigMap, forbid("update"), []string{"ConfigMap kube-system/aws-auth", "forbidden", "artifacts/deploy/components/aws-auth"}},
		"no permission to create": {irsa.ConfigMap, func(s *setting) { remove(s); forbid("create")(s) }, []string{"ConfigMap kube-system/aws-auth", "forbidden", "artifacts/deploy/components/aws-auth"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetting(t)
			test.change(s)
			d := s.driver(func(o *Options) { o.Mapping = test.mapping })
			s.hub.ClearActions()
			problems, err := d.Check(t.Context())
			if err != nil || (len(problems) > 0) != (len(test.want) > 0) {
				t.Fatalf("Check() = %q, %v, want a problem that contains %q", problems, err, test.want)
			}
			for _, text := range test.want {
				if !strings.Contains(problems[0], text) {
					t.Errorf("Check() = %q, want a problem that contains %q", problems, text)
				}
			}
			for _, action := range s.hub.Actions() {
				update, isUpdate := action.(clienttesting.UpdateActionImpl)
				create, isCreate := action.(clienttesting.CreateActionImpl)
				if isUpdate && len(update.UpdateOptions.DryRun) == 0 || isCreate && len(create.CreateOptions.DryRun) == 0 {
					t.Errorf("%s request of Check() is not a dry run, want a dry run", action.GetVerb())
				}
			}
		})
	}
}
