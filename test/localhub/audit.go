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

// auditArgs has an API server log the requests that a policy says, in YAML; none
// without a policy.
func auditArgs(dir, policy string) ([]string, error) {
	if policy == "" {
		return nil, nil
	}
	path := filepath.Join(dir, "audit-policy.yaml")
	if err := writeFile(path, []byte(policy)); err != nil {
		return nil, err
	}
	// Requests wait for the log, so whoever has an answer finds how it came about.
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + auditLog(dir), "--audit-log-mode=blocking"}, nil
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// AuditLog is the file with the audit log, for [ReadAudit].
func (c *Cluster) AuditLog() string { return auditLog(c.dir) }

// AuditLog is the file with the audit log, for [ReadAudit].
func (s *APIServer) AuditLog() string { return auditLog(s.dir) }

// AuditEnd returns the offset at which the last event of an audit log ends. The size
// of the file is none: the last line may be only half written.
func AuditEnd(path string) (int64, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	chunk := make([]byte, 64<<10)
	for end > 0 {
		begin := max(0, end-int64(len(chunk)))
		n, err := file.ReadAt(chunk[:end-begin], begin)
		if err != nil {
			return 0, err
		}
		if at := bytes.LastIndexByte(chunk[:n], '\n'); at >= 0 {
			return begin + int64(at) + 1, nil
		}
		end = begin
	}
	return 0, nil
}

// ReadAudit returns what an audit log has from an offset on at which an event ends, and the offset at
// which the last event ends. A log does not exist before its first event.
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
	// The last line may be only half written.
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
