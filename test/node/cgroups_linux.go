package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// cgroups is where the machine has its hierarchies of cgroups.
const cgroups = "/sys/fs/cgroup"

// hierarchies returns the directories of all hierarchies, and whether cgroup v2 has all controllers.
func hierarchies() (out []string, v2 bool, err error) {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		return []string{cgroups}, true, nil
	}
	procs, err := filepath.Glob(filepath.Join(cgroups, "*", "cgroup.procs"))
	if err == nil && len(procs) == 0 {
		err = errors.New("no cgroups in " + cgroups)
	}
	for _, file := range procs {
		out = append(out, filepath.Dir(file))
	}
	return out, false, err
}

// createGroups creates a cgroup in all hierarchies, with access to all processors and to all memory.
func createGroups(name string) error {
	all, v2, err := hierarchies()
	if err != nil {
		return err
	}
	if v2 {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io"} {
			if err := os.WriteFile(filepath.Join(cgroups, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
				return fmt.Errorf("enable the cgroup controller %s: %w", controller, err)
			}
		}
	}
	for _, hierarchy := range all {
		group := filepath.Join(hierarchy, name)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as all cgroups
			return err
		}
		// Without a value, a cgroup of v1 accepts no processes.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(hierarchy, file)); err == nil {
				if err := os.WriteFile(filepath.Join(group, file), value, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// removeGroups removes a cgroup whose processes have ended, with those below it.
func removeGroups(name string) error {
	all, _, err := hierarchies()
	errs := []error{err}
	for _, hierarchy := range all {
		var groups []string
		_ = filepath.WalkDir(filepath.Join(hierarchy, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for _, group := range slices.Backward(groups) {
			// The kernel counts a process until a moment after its end.
			var err error
			_ = wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
				err = syscall.Rmdir(group)
				return !errors.Is(err, syscall.EBUSY), nil
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove the cgroup %s: %w", group, err))
			}
		}
	}
	return errors.Join(errs...)
}
