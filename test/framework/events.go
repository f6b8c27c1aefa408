package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HasEvent waits until the hub has an Event about an object. note is a part of its note.
func (f *Fleet) HasEvent(t *testing.T, namespace, kind, name, eventType, reason, note string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s %s has the %s Event %s", kind, name, eventType, reason), func(ctx context.Context) error {
		list, err := f.HubClient.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.kind=" + kind + ",regarding.name=" + name})
		if err != nil {
			return err
		}
		var found []string
		for _, event := range list.Items {
			if event.Type == eventType && event.Reason == reason && strings.Contains(event.Note, note) && event.Regarding.UID != "" {
				return nil
			}
			found = append(found, event.Type+" "+event.Reason+" "+event.Action+": "+event.Note)
		}
		return fmt.Errorf("Events = %q, want %q", found, note)
	})
}
