package work

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// formerKey begins the queue's names of AppliedManifestWorks of hubs that the agent
// has left. No work has a name with a slash.
const formerKey = "former/"

// former reports whether a record is this agent's own, from when it was at another hub.
// Agents of several hubs are told apart by their agent IDs.
func (c *Controller) former(record *workv1.AppliedManifestWork) bool {
	return record.Spec.HubHash != c.hubHash && record.Spec.AgentID == c.agentID && c.ours(record)
}

// evictFormer removes what the agent applied for a hub that it has left, after the
// grace period. What works of the present hub have taken over stays with them.
func (c *Controller) evictFormer(ctx context.Context, key string, st *workState) (outcome, error) {
	name := strings.TrimPrefix(key, formerKey)
	record, err := c.managed.WorkV1().AppliedManifestWorks().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return outcome{}, err
	}
	if err != nil || !c.former(record) {
		c.watches.track(key, nil)
		c.dropState(key, st)
		return outcome{state: stateGone}, nil
	}
	if left, err := c.grace(ctx, st, record); err != nil || left > 0 {
		return outcome{state: stateDeleting, again: min(left, resyncPeriod)}, err
	}
	orphan, err := recordedOrphans(record)
	if err != nil {
		return outcome{state: stateDeleting}, err
	}
	how := letGo{until: c.slice(), ownedOnly: true, orphan: orphan}
	done, err := c.clear(ctx, key, st, record, how)
	if !done || err != nil {
		return outcome{state: stateDeleting, again: c.resume(how)}, err
	}
	klog.FromContext(ctx).Info("Removed what was applied for another hub", "record", name, "hubHash", record.Spec.HubHash)
	c.watches.track(key, nil)
	c.dropState(key, st)
	return outcome{state: stateGone}, nil
}
