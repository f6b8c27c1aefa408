package node

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/child"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

//go:embed sandbox.sh
var sandboxScript string

// sandboxPatience bounds the preparation of a sandbox.
const sandboxPatience = 30 * time.Second

// Node is one node of a cluster. Its network exists from [Network.Add] until [Network.Close].
type Node struct {
	// Name is the name of the Node on its cluster, and Address its address.
	Name, Address string
	// Containerd, Kubelet, Proxy and Scheduler are the programs of the node, from Join on. Containers survive the end of
	// Containerd and Kubelet. Only the node with the control plane has a Scheduler.
	Containerd, Kubelet, Proxy, Scheduler *localhub.Process

	dir, pods, group string
	spaces           []namespace
	kube             kubernetes.Interface
	sandbox          *sandbox
}

// sandbox is the running process 1 of a node.
type sandbox struct {
	// process is its id on this machine.
	process int
	spaces  []namespace
	stdin   *os.File
	kill    func() error
	ended   <-chan error
}

// Join writes the configuration of the node for its cluster, of which ClusterOptions.Nodes is set.
func (node *Node) Join(cluster *localhub.Cluster) error {
	var err error
	if node.kube, err = kubernetes.NewForConfig(cluster.AdminConfig()); err != nil {
		return err
	}
	for user, groups := range map[string][]string{"system:node:" + node.Name: {"system:nodes"}, "system:kube-proxy": nil, "system:kube-scheduler": nil} {
		if err := cluster.WriteKubeconfig(node.kubeconfig(user), user, groups...); err != nil {
			return err
		}
	}
	for path, content := range map[string]string{
		"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "kube-proxy.yaml": proxyConfig,
		"etc/cni/net.d/10-pods.conflist": cniConfig, "resolv.conf": "",
	} {
		content = strings.NewReplacer("{{Address}}", node.Address, "{{Name}}", node.Name, "{{Pods}}", node.pods, "{{Group}}", node.group,
			"{{ClientCA}}", cluster.ClientCAFile(), "{{Directory}}", node.dir, "{{Plugins}}", plugins(), "{{Pause}}", pause,
			"{{Proxy}}", node.kubeconfig("system:kube-proxy")).Replace(content)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(node.dir, path)), 0o755); err != nil { //nolint:gosec // /etc
			return err
		}
		if err := os.WriteFile(filepath.Join(node.dir, path), []byte(content), 0o644); err != nil { //nolint:gosec // no secrets
			return err
		}
	}
	host := &localhub.Host{Address: node.Address, Contained: true, Run: func(start func() error) error { return within(node.inside(), start) }}
	process := func(path string, args ...string) *localhub.Process {
		name := filepath.Base(path)
		// containerd starts the shim that is first in the PATH, and it must have the version of containerd.
		return &localhub.Process{
			Name: node.Name + " " + name, Path: path, Args: args, Host: host, LogFile: filepath.Join(node.dir, "logs", name+".log"),
			Env: []string{"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"},
		}
	}
	for name, p := range map[string]**localhub.Process{"kubelet": &node.Kubelet, "kube-proxy": &node.Proxy, "kube-scheduler": &node.Scheduler} {
		path, err := localhub.Binary(localhub.BinDir(), name)
		if err != nil {
			return err
		}
		*p = process(path)
	}
	node.Containerd = process(find("containerd"), "--config="+filepath.Join(node.dir, "containerd.toml"))
	node.Containerd.Ready = func(ctx context.Context) error {
		_, err := node.Run(ctx, "ctr", "version")
		return err
	}
	node.Kubelet.Args = []string{
		"--config=" + filepath.Join(node.dir, "kubelet.yaml"), "--kubeconfig=" + node.kubeconfig("system:node:"+node.Name),
		"--hostname-override=" + node.Name, "--node-ip=" + node.Address,
	}
	node.Proxy.Args = []string{"--config=" + filepath.Join(node.dir, "kube-proxy.yaml")}
	if !strings.HasPrefix(cluster.AdminConfig().Host, "https://"+node.Address+":") {
		node.Scheduler = nil
		return nil
	}
	scheduler := node.kubeconfig("system:kube-scheduler")
	node.Scheduler.Args = []string{
		"--kubeconfig=" + scheduler, "--authentication-kubeconfig=" + scheduler, "--authorization-kubeconfig=" + scheduler,
		"--leader-elect=false", "--bind-address=127.0.0.1",
	}
	return nil
}

func (node *Node) kubeconfig(user string) string {
	return filepath.Join(node.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
}

// Start boots the node, and returns when it is ready. The cluster must be running.
func (node *Node) Start(ctx context.Context) error {
	err := node.boot()
	if err == nil {
		err = node.start(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start the node %s: %w", node.Name, err), node.Crash())
	}
	return nil
}

func (node *Node) start(ctx context.Context) error {
	if err := node.Containerd.Start(ctx); err != nil {
		return err
	}
	program, err := localhub.Binary(localhub.BinDir(), "pause")
	if err != nil {
		return err
	}
	if err := node.Import(ctx, Image{Name: pause, Program: program, Path: "/pause"}); err != nil {
		return err
	}
	begin := time.Now()
	for _, process := range []*localhub.Process{node.Proxy, node.Kubelet, node.Scheduler} {
		if process == nil {
			continue
		}
		if err := process.Launch(); err != nil {
			return err
		}
	}
	var final error
	err = await.Poll(ctx, func(ctx context.Context) error {
		for _, process := range node.Processes() {
			if !process.Running() {
				final = process.Failure()
				return nil
			}
		}
		object, err := node.kube.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		// After a crash, the condition stays for some time.
		if !slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(begin.Truncate(time.Second))
		}) {
			return fmt.Errorf("conditions of the Node = %v, want Ready", object.Status.Conditions)
		}
		if rules, err := node.Run(ctx, "nft", "list", "ruleset"); err != nil || !strings.Contains(rules, "default/kubernetes") {
			return errors.Join(errors.New("kube-proxy has no rules for the Service kubernetes yet"), err)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w%s", err, node.Kubelet.LogTail())
	}
	return errors.Join(err, final)
}

// Processes returns the programs of the node.
func (node *Node) Processes() []*localhub.Process {
	all := []*localhub.Process{node.Containerd, node.Kubelet, node.Proxy, node.Scheduler}
	return slices.DeleteFunc(all, func(p *localhub.Process) bool { return p == nil })
}

// boot starts the sandbox.
func (node *Node) boot() error {
	if node.sandbox != nil {
		return errors.New("it runs already")
	}
	if err := errors.Join(removeGroups(node.group), createGroups(node.group)); err != nil {
		return err
	}
	stdin, input, err := os.Pipe()
	if err != nil {
		return err
	}
	output, stdout, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), input.Close())
	}
	defer func() { _, _, _ = stdin.Close(), output.Close(), stdout.Close() }()
	command := exec.Command("bash", "-c", sandboxScript, "sandbox.sh", node.dir)
	command.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	command.Stdin, command.Stdout, command.Stderr = stdin, stdout, stdout
	ended, err := child.Start(command, syscall.SIGKILL, node.Host().Run)
	if err != nil {
		return errors.Join(fmt.Errorf("create a sandbox: %w", err), input.Close())
	}
	node.sandbox = &sandbox{process: command.Process.Pid, stdin: input, kill: command.Process.Kill, ended: ended}
	_ = stdout.Close()
	if err := output.SetReadDeadline(time.Now().Add(sandboxPatience)); err != nil {
		return err
	}
	var printed strings.Builder
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		if scanner.Text() == "ready" {
			node.sandbox.spaces, err = namespacesOf(strconv.Itoa(command.Process.Pid), unix.CLONE_NEWPID, unix.CLONE_NEWNS)
			return err
		}
		printed.WriteString(scanner.Text() + "\n")
	}
	return errors.Join(errors.New("create a sandbox: "+printed.String()), scanner.Err())
}

// inside returns the namespaces of the programs of the node.
func (node *Node) inside() []namespace {
	if node.sandbox == nil {
		return node.spaces
	}
	return slices.Concat(node.spaces, node.sandbox.spaces)
}

// Crash ends all processes of the node and its containers at once. Its disk remains, and the node can start again.
func (node *Node) Crash() error {
	if node.sandbox == nil {
		return nil
	}
	// The kernel kills the other processes of the PID namespace with the first one.
	if err := node.sandbox.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-node.sandbox.ended
	err := errors.Join(closeAll(node.sandbox.spaces), node.sandbox.stdin.Close())
	node.sandbox = nil
	for _, process := range node.Processes() {
		<-process.Exited()
	}
	return err
}

// find returns the path of a program of this machine, or its name if it is missing.
func find(name string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return name
}

// plugins returns the directory of the CNI plugins: that of Debian, or that of other packages.
func plugins() string {
	const debian = "/usr/lib/cni"
	if _, err := os.Stat(filepath.Join(debian, "bridge")); err == nil {
		return debian
	}
	return "/opt/cni/bin"
}

// Missing returns why this machine cannot run nodes, or nil.
func Missing() error {
	if os.Getuid() != 0 {
		return errors.New("real nodes require root")
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "ctr", "nft", "ip", "bash"} {
		if !strings.Contains(find(name), "/") {
			return fmt.Errorf("%s is missing: run hack/install-node.sh", name)
		}
	}
	if _, err := os.Stat(filepath.Join(plugins(), "bridge")); err != nil {
		return fmt.Errorf("the CNI plugins are missing: run hack/install-node.sh: %w", err)
	}
	if err := tryInotify(); err != nil {
		return err
	}
	const group = "hub-node-probe"
	if err := errors.Join(createGroups(group), removeGroups(group)); err != nil {
		return fmt.Errorf("this machine cannot create cgroups: %w", err)
	}
	network, err := NewNetwork()
	if err != nil {
		return fmt.Errorf("this machine cannot create the network of nodes: %w", err)
	}
	return network.Close()
}

// instances is how many inotify instances the programs of two clusters use.
const instances = 64

// tryInotify returns an error if all programs of this user have too few inotify instances left.
func tryInotify() (err error) {
	var open []int
	for range instances {
		fd, failed := unix.InotifyInit1(unix.IN_CLOEXEC)
		if failed != nil {
			err = fmt.Errorf("fs.inotify.max_user_instances leaves fewer than %d: run hack/install-node.sh: %w", instances, failed)
			break
		}
		open = append(open, fd)
	}
	for _, fd := range open {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}
