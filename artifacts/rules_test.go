package artifacts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRulesAreExplained checks that a comment before each RBAC rule, or before the only rule's role, explains the rule.
func TestRulesAreExplained(t *testing.T) {
	rule := regexp.MustCompile(`^\s*- (apiGroups|nonResourceURLs|verbs|resources):`)
	roles := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || strings.HasPrefix(path, "example") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, document := range strings.Split(string(content), "\n---\n") {
			if !regexp.MustCompile(`(?m)^kind: (Cluster)?Role$`).MatchString(document) {
				continue
			}
			roles++
			lines := strings.Split(document, "\n")
			var unexplained, rules int
			for i, line := range lines {
				if !rule.MatchString(line) {
					continue
				}
				rules++
				if !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#") {
					unexplained++
				}
			}
			if unexplained > 0 && (rules > 1 || !strings.HasPrefix(document, "#")) {
				t.Errorf("%s: %d of %d rules of a role have no comment:\n%s", path, unexplained, rules, document)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if roles < 20 {
		t.Errorf("roles = %d, want at least 20", roles)
	}
}
