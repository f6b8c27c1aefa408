package localhub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditArgs returns the arguments with which an API server logs requests according to an audit
// policy in YAML, or none without a policy.
func auditArgs(dir, policy string) ([]string, error) {
	if policy == "" {
		return nil, nil
	}
	path := filepath.Join(dir, "audit-policy.yaml")
	if err := writeFile(path, []byte(policy)); err != nil {
		return nil, err
	}
	// In blocking mode, the log contains a request before its caller receives the response.
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + auditLog(dir), "--audit-log-mode=blocking"}, nil
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// AuditLog returns the path of the audit log, for [ReadAudit].
func (c *Cluster) AuditLog() string { return auditLog(c.dir) }

// AuditLog returns the path of the audit log, for [ReadAudit].
func (s *APIServer) AuditLog() string { return auditLog(s.dir) }

// AuditEnd returns the offset at which the last complete event of an audit log ends. It can be
// less than the size of the file, because the last line may be incomplete.
func AuditEnd(path string) (int64, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return int64(bytes.LastIndexByte(content, '\n') + 1), err
}

// ReadAudit returns the events of an audit log after an offset at which an event ends, and the
// offset at which the last complete event ends. A log does not exist before its first event.
func ReadAudit(path string, from int64) (events []auditv1.Event, end int64, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, from, nil
	}
	if err != nil {
		return nil, from, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, from, err
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return nil, from, err
	}
	// The last line may be incomplete.
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	for line := range bytes.Lines(content) {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, from, fmt.Errorf("%s: %w", path, err)
		}
		events = append(events, event)
	}
	return events, from + int64(len(content)), nil
}
