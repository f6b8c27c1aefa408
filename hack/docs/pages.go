// Package docs reads the documents of the repository, and its tests check them.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

var (
	block    = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```$")
	indented = regexp.MustCompile(`(?m)(?:^(?: {4,}|\t).*\n?)+`)
)

// Pages returns the text of each Markdown file below a directory, by its path.
func Pages(root string) (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != root && (entry.Name() == "bin" || entry.Name() == ".git" || entry.Name() == ".run") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		relative, _ := filepath.Rel(root, name)
		found[relative] = string(text)
		return err
	})
	return found, err
}

// Blocks returns a page without its blocks of code between backticks, and all blocks of code, also the indented ones.
func Blocks(text string) (prose string, blocks []string) {
	for _, match := range block.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, match[1])
	}
	prose = block.ReplaceAllString(text, "")
	return prose, append(blocks, indented.FindAllString(prose, -1)...)
}

// Objects returns, in JSON, the objects of a block that belong to the API of the server. Objects with omissions or
// placeholders are left out.
func Objects(text string) (found [][]byte) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.Contains(lines[i], "apiVersion:") {
			continue
		}
		indent := len(lines[i]) - len(strings.TrimLeft(lines[i], " "))
		var kept []string
		for ; i < len(lines); i++ {
			if trimmed := strings.TrimSpace(lines[i]); trimmed == "EOF" || strings.HasPrefix(trimmed, "$ ") {
				break
			}
			kept = append(kept, strings.TrimPrefix(lines[i], strings.Repeat(" ", indent)))
		}
		for _, document := range strings.Split(strings.Join(kept, "\n"), "\n---\n") {
			content, err := yaml.YAMLToJSON([]byte(document))
			if err == nil && strings.Contains(string(content), "open-cluster-management.io/") && !strings.ContainsAny(document, "…<") {
				found = append(found, content)
			}
		}
	}
	return found
}
