package apiserver

import (
	"testing"
)

// TestDatabaseCheck checks that a replica is unready only while another one can answer searches.
func TestDatabaseCheck(t *testing.T) {
	t.Parallel()
	database := startDatabase(t)
	const replicas = 2
	var away [replicas]bool
	var checks [replicas]*databaseCheck
	for i, name := range []string{"a", "b"} {
		checks[i] = newDatabaseCheck(func() bool { return away[i] }, database.client, "/registry/test", name)
	}
	for _, row := range []struct {
		name        string
		away, ready [replicas]bool
	}{
		{"both reach the database", [replicas]bool{false, false}, [replicas]bool{true, true}},
		{"a loses it", [replicas]bool{true, false}, [replicas]bool{false, true}},
		{"both lose it", [replicas]bool{true, true}, [replicas]bool{true, true}},
		{"b reaches it again", [replicas]bool{true, false}, [replicas]bool{false, true}},
		{"both reach it again", [replicas]bool{false, false}, [replicas]bool{true, true}},
	} {
		away = row.away
		// Each replica sees what the others have written in the second round.
		for range 2 {
			for i, check := range checks {
				if err := check.update(t.Context()); err != nil {
					t.Fatalf("%s: update of replica %d = %v, want none", row.name, i, err)
				}
			}
		}
		for i, check := range checks {
			if err := check.ready(nil); (err == nil) != row.ready[i] {
				t.Errorf("%s: ready() of replica %d = %v, want ready %t", row.name, i, err, row.ready[i])
			}
		}
	}
	// The lease of a replica that was stopped for a while has expired.
	if _, err := database.client.Revoke(t.Context(), checks[0].lease); err != nil {
		t.Fatal(err)
	}
	if err := checks[0].update(t.Context()); err != nil {
		t.Errorf("update without the lease = %v, want none", err)
	}
	away = [replicas]bool{false, true}
	if err := checks[1].update(t.Context()); err != nil || checks[1].ready(nil) == nil {
		t.Errorf("ready() of replica 1 while replica 0 has a new lease = ready, %v, want not ready", err)
	}
}
