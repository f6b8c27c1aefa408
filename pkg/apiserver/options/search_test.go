package options

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestReplicasOfPostgres(t *testing.T) {
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := newSearch()
	s.Engine, s.PostgresURLFile = "postgres", file("url", "host=a\n")
	s.PostgresReplicaURLsFile, s.PostgresMaxStaleness = file("replicas", "host=b\n\n  host=c\n"), 2*time.Second
	if errs := s.validate(false); len(errs) > 0 {
		t.Errorf("validate() = %v, want none", errs)
	}
	config, err := s.config("")
	if err != nil || config.PostgresURL != "host=a" || !slices.Equal(config.PostgresReplicaURLs, []string{"host=b", "host=c"}) || config.PostgresMaxStaleness != 2*time.Second {
		t.Errorf("config() = %+v, %v, want one URL, two replicas and two seconds", config, err)
	}
	s.PostgresReplicaURLsFile = filepath.Join(t.TempDir(), "missing")
	if _, err := s.config(""); err == nil {
		t.Error("config() without the file succeeds, want an error")
	}
	s.PostgresMaxStaleness = time.Millisecond
	if errs := s.validate(false); len(errs) != 1 {
		t.Errorf("validate() with a staleness of 1 ms = %v, want one error", errs)
	}
	s = newSearch()
	s.PostgresReplicaURLsFile = "replicas"
	if errs := s.validate(true); len(errs) != 1 {
		t.Errorf("validate() of replicas of the embedded engine = %v, want one error", errs)
	}
}
