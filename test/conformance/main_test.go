package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const startDeadline = 4 * time.Minute

// shared is the hub that all tests use. A test must not break it.
var shared *hub

// hub is a running hub with the server, and clients with the administrator's credentials.
type hub struct {
	*localhub.Fleet
	admin      *rest.Config
	dynamic    dynamic.Interface
	kube       kubernetes.Interface
	kubeconfig string
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := useTestParallelism(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

// useTestParallelism sets the number of parallel tests to 8, unless the flag -parallel is set.
// The tests mostly wait, so more of them than processors can run at a time.
func useTestParallelism() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", "8")
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := localhub.ReserveShared(1, 1); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The short compaction interval lets TestExpiredResourceVersion observe expired resource versions.
	shared, err = startHub(dir, "--etcd-compaction-interval=10s", quotaOfBytes())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if !shared.Server.Running() {
		fmt.Fprintln(os.Stderr, shared.Server.Failure())
		code = 1
	}
	if err := shared.Kill(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the logs are in %s\n", filepath.Join(dir, "logs"))
		return code
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startHub starts a hub that stores its data in dir and serves all groups, including the optional
// ones.
func startHub(dir string, serverArgs ...string) (*hub, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	fleet, err := localhub.NewFleet(localhub.FleetOptions{
		Dir:           dir,
		KubeBinDir:    os.Getenv("HUB_KUBE_BIN"),
		NoFsync:       true,
		APIServerArgs: append(serverArgs, "--runtime-config="+proxyv1alpha1.SchemeGroupVersion.String()+"=true"),
	})
	if err != nil {
		return nil, err
	}
	if err := fleet.Start(ctx); err != nil {
		return nil, err
	}
	if err := fleet.Server.Register(ctx, proxyv1alpha1.GroupName); err != nil {
		return nil, errors.Join(err, fleet.Kill())
	}
	h := &hub{Fleet: fleet, admin: fleet.Hub.AdminConfig(), kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	// TestDeprecatedVersionWarns checks the warnings of deprecated versions.
	h.admin.WarningHandler = rest.NoWarnings{}
	err = func() error {
		if err := fleet.Hub.WriteAdminKubeconfig(h.kubeconfig); err != nil {
			return err
		}
		if h.kube, err = kubernetes.NewForConfig(h.admin); err != nil {
			return err
		}
		if h.dynamic, err = dynamic.NewForConfig(h.admin); err != nil {
			return err
		}
		// After a restart, the garbage collector discovers the new API groups immediately. Otherwise it
		// takes up to half a minute.
		if err := fleet.Hub.ControllerManager.Restart(ctx); err != nil {
			return err
		}
		return h.waitForOpenAPI(ctx)
	}()
	if err != nil {
		return nil, errors.Join(err, h.Kill())
	}
	return h, nil
}

// waitForOpenAPI waits until the hub has fetched the server's OpenAPI documents, which it does some
// time after it serves the API. Before that, kubectl assumes that the hub does not support
// server-side validation of these kinds.
func (h *hub) waitForOpenAPI(ctx context.Context) error {
	return await.Poll(ctx, func() error {
		paths, err := h.kube.Discovery().OpenAPIV3().Paths()
		for _, k := range served() {
			if err == nil && paths["apis/"+k.version.String()] == nil {
				err = fmt.Errorf("the hub has no OpenAPI document of %s", k.version)
			}
		}
		return err
	})
}

// readYAML reads one object from a file.
func readYAML(path string) (map[string]any, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := yaml.Unmarshal(content, &object); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return object, nil
}
