package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

func (m *migration) moveToServer(ctx context.Context) error {
	finish := []handover.Step{
		{Name: "accept writes", Run: func(ctx context.Context) error {
			// A migration back that was interrupted may have changed the UIDs of accounts.
			if err := m.assignSecrets(ctx); err != nil {
				return err
			}
			return m.removePolicies(ctx, accountPolicy, handover.FreezePolicy)
		}},
		{Name: "start the controllers of the server", Run: func(ctx context.Context) error { return handover.Release(ctx, m.Kube) }},
	}
	// Without a freeze, both sides may differ because the server has accepted writes since.
	pending, err := m.pending(ctx)
	if err != nil {
		return err
	}
	if frozen, err := handover.Frozen(ctx, m.Kube); err != nil {
		return err
	} else if len(pending) == 0 && !frozen {
		return m.steps(ctx, finish)
	}
	return m.steps(ctx, append([]handover.Step{
		{Name: "check all objects", Run: m.checkPending},
		{Name: "keep the server from changing anything yet", Run: m.hold},
		{Name: "stop the controllers that the server replaces", Run: m.stopControllers},
		{Name: "refuse writes", Run: func(ctx context.Context) error {
			if err := m.freeze(ctx); err != nil {
				return err
			}
			return m.suspendWebhooks(ctx, true) // only now, since they check writes
		}},
		{Name: "copy the objects", Run: m.copyPending},
		{Name: "forward requests to the server", Run: m.forward},
		{Name: "keep the objects in the CustomResourceDefinitions, and end their watches", Run: func(ctx context.Context) error {
			unchanged := m.applyPolicy(ctx, keepPolicy, keepMessage, m.writes(handover.KeptVersion), nil)
			return errors.Join(unchanged, m.keepVersions(ctx, true))
		}},
		{Name: "compare both sides", Run: m.compare},
		{Name: "grant upstream agents access to the server", Run: m.grantUpstreamAgents},
	}, finish...))
}

func (m *migration) hold(ctx context.Context) error { return handover.Hold(ctx, m.Kube) }

// checkPending refuses to begin with objects that the server would refuse, while nothing has changed yet.
func (m *migration) checkPending(ctx context.Context) error {
	pending, err := m.pending(ctx)
	if err != nil || len(pending) == 0 {
		return err
	}
	return m.copied(m.copyToServer(ctx, pending, metav1.DryRunAll))
}

func (m *migration) copyPending(ctx context.Context) error {
	pending, err := m.pending(ctx)
	if err != nil || len(pending) == 0 {
		return err
	}
	if err := m.discard(ctx, pending); err != nil {
		return err
	}
	return m.copied(m.copyToServer(ctx, pending))
}

// discard removes the objects of earlier attempts from the server.
func (m *migration) discard(ctx context.Context, kinds []*handover.CustomKind) error {
	discard := func(version schema.GroupVersion, kind string) error {
		_, err := handover.Import(ctx, m.Dynamic, map[string]any{"discard": map[string]any{"group": version.Group, "version": version.Version, "kind": kind}})
		return cli.Prefix(err, "discard %s", kind)
	}
	for _, kind := range kinds {
		if err := discard(kind.Version, kind.Name); err != nil {
			return err
		}
	}
	if forwarded, err := m.Forwards(ctx, registerv1alpha1.SchemeGroupVersion); err != nil || forwarded {
		return err
	}
	return discard(registerv1alpha1.SchemeGroupVersion, handover.KindRegistration)
}

// copyToServer copies the objects of the kinds to the server. In a dry run, the server only checks them. It returns
// a finding for each object that the server refuses, or would store with a difference.
func (m *migration) copyToServer(ctx context.Context, kinds []*handover.CustomKind, dryRun ...string) (map[string]int, []cli.Finding, error) {
	counts := map[string]int{}
	epoch, findings, err := handover.AdoptedEpoch(ctx, m.Kube)
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range kinds {
		objects, err := handover.ListAll(ctx, m.Dynamic, kind.Served())
		if err != nil {
			return nil, nil, err
		}
		if kind.Name == handover.KindManagedCluster {
			for _, object := range objects {
				findings = append(findings, distrust(object, epoch)...)
			}
		}
		counts[kind.Name] = len(objects)
		if err := handover.ImportObjects(ctx, m.Dynamic, slices.Collect(maps.Values(objects)), false, dryRun, func(object *unstructured.Unstructured, problem string) {
			findings = append(findings, cli.Bad(manifests.Display(object), problem, "change or delete the object"))
		}); err != nil {
			return nil, nil, err
		}
	}
	cli.SortBySubject(findings)
	return counts, findings, nil
}

// requestedByAnnotation names the creator of a ManagedCluster, who may request its first certificate.
const requestedByAnnotation = "register.open-cluster-management.io/requested-by"

// distrust removes the annotations by which the server and agents would believe what everyone with permission to update a
// ManagedCluster can write while a CustomResourceDefinition serves it: its creator, and another epoch than that of the
// adoption by this hub.
func distrust(cluster *unstructured.Unstructured, epoch rehoming.Epoch) []cli.Finding {
	annotations := cluster.GetAnnotations()
	delete(annotations, requestedByAnnotation)
	var findings []cli.Finding
	if text, found := annotations[rehoming.EpochAnnotation]; found && text != epoch.String() {
		delete(annotations, rehoming.EpochAnnotation)
		findings = append(findings, cli.Warning(manifests.Display(cluster), fmt.Sprintf("annotation %s is not copied, because the epoch of this hub is %q", rehoming.EpochAnnotation, epoch),
			"if this hub has adopted the cluster, restore the ConfigMap "+handover.AdoptionState+" in "+manifests.HubNamespace+", and run the command again"))
	}
	cluster.SetAnnotations(annotations)
	return findings
}

// compare refuses to continue if both sides differ, while the hub forwards to the server. Nobody but a migration can have
// written since they were copied.
func (m *migration) compare(ctx context.Context) error {
	epoch, _, err := handover.AdoptedEpoch(ctx, m.Kube)
	if err != nil {
		return err
	}
	var findings []cli.Finding
	for _, kind := range m.kinds {
		served, err := handover.ListAll(ctx, m.Dynamic, kind.Served())
		if err != nil {
			return err
		}
		kept, err := handover.ListAll(ctx, m.Dynamic, kind.Kept())
		if err != nil {
			return err
		}
		for name, object := range served {
			if kept[name] == nil {
				findings = append(findings, cli.Bad(manifests.Display(object), "only the server has it", ""))
			}
		}
		for name, object := range kept {
			other := served[name]
			if other == nil {
				findings = append(findings, cli.Bad(manifests.Display(object), "only the CustomResourceDefinition has it", ""))
				continue
			}
			if kind.Name == handover.KindManagedCluster {
				distrust(object, epoch)
			}
			expected := handover.Comparable(object.Object)
			expected["apiVersion"] = kind.Version.String()
			if lost := handover.Differences(expected, handover.Comparable(other.Object)); len(lost) > 0 {
				findings = append(findings, cli.Bad(manifests.Display(object), "the sides differ in "+cli.Some(lost), ""))
			}
		}
	}
	return m.Refuse(findings)
}
