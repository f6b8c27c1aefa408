// Command run is the program of `make run`. It starts a hub, managed clusters, the apiserver and the
// agents, joins the clusters with clusteradm, applies artifacts/example, prints a transcript of
// commands that show the result, and runs until Ctrl-C.
//
// The environment variable CLUSTERS is the number of managed clusters (default 2). With ONCE=1
// the program stops after the transcript. With AWS=fake the clusters are EKS clusters of a server
// that simulates AWS, and the last one joins with IAM roles. With DEMO=1 the hub also has the fleet
// of test/demo. With NODES=real it starts clusters with real nodes instead, on which its user installs the hub. The next run uses the same data, in .run or, with AWS=fake, in .run/aws. RUN_DIR names
// another directory.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

var (
	stateDir   = cmp.Or(os.Getenv("RUN_DIR"), ".run")
	hubConfig  = stateDir + "/hub.kubeconfig"
	readyFile  = stateDir + "/ready"
	lockFile   = stateDir + "/lock"
	logDir     = stateDir + "/logs"
	kubectlDir = stateDir + "/kubectl-cache"
	awsDir     = stateDir + "/aws"
)

const (
	// startTimeout bounds the start and the transcript, which take less than ten seconds on an idle machine.
	startTimeout = 5 * time.Minute
	stopTimeout  = time.Minute
)

const usage = `Usage: bin/run

Starts a hub and managed clusters on this machine, shows a session, and runs until Ctrl-C. make run
builds it with the programs that it starts. The environment configures it:

  CLUSTERS=2   number of managed clusters
  ONCE=1       stop after the session
  AWS=fake     simulate AWS; the last cluster joins with IAM roles
  DEMO=1       add a fleet of 40 simulated clusters with 20,000 resources
  NODES=real   only start clusters with real nodes (root): kubelet, containerd and runc
  RUN_DIR      directory of the data and logs, by default .run
`

func main() {
	flag.Usage = func() { _, _ = fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse() // prints the usage for --help, and exits
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends this process at once, and the kernel ends its children.
	context.AfterFunc(ctx, restore)
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nrun: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	count := 2
	if value := os.Getenv("CLUSTERS"); value != "" {
		if count, err = strconv.Atoi(value); err != nil || count < 1 {
			return fmt.Errorf("CLUSTERS=%s: want a number, 1 or more", value)
		}
	}
	withAWS := os.Getenv("AWS") != ""
	if value := os.Getenv("AWS"); withAWS && value != "fake" {
		return fmt.Errorf("AWS=%s: want fake", value)
	}
	if err := os.Chdir(localhub.Root()); err != nil {
		return err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := errors.Join(os.RemoveAll(readyFile), os.RemoveAll(kubectlDir)); err != nil {
		return err
	}

	clusters := make([]string, count)
	for i := range clusters {
		clusters[i] = "cluster" + strconv.Itoa(i+1)
	}
	if value := os.Getenv("NODES"); value == "real" {
		return runNodes(ctx, clusters)
	} else if value != "" {
		return fmt.Errorf("NODES=%s: want real", value)
	}
	options := localhub.FleetOptions{
		Dir:      stateDir,
		LogDir:   logDir,
		Clusters: clusters,
		HubAgent: true,
		Join:     localhub.JoinByRegistration,
		// The data survive a kill of a process. They need not survive a crash of the machine.
		NoFsync: true,
		Ran:     ran,
		Progress: func(step string, elapsed time.Duration) {
			fmt.Printf("%6.1fs  %s\n", elapsed.Seconds(), step)
		},
	}
	if withAWS {
		// A cluster that joined with a certificate cannot change to IAM roles, so the data are separate.
		if err := os.MkdirAll(awsDir, 0o700); err != nil {
			return err
		}
		if options.AWS, err = startAWS(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, options.AWS.Close()) }()
		options.Dir = awsDir
		if options.IRSA, err = irsaClusters(clusters); err != nil {
			return err
		}
	}
	fleet, err := localhub.NewFleet(options)
	if err != nil {
		return err
	}
	fmt.Printf("==> starting a hub and %s; logs in %s\n", strings.Join(clusters, ", "), logDir)
	begin := time.Now()
	defer func() { err = errors.Join(err, stop(fleet)) }()
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := start(startCtx, fleet); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted during the start")
		}
		return err
	}
	shown := session(startCtx, fleet, options)
	if ctx.Err() != nil {
		return errors.New("interrupted during the session")
	}
	if set("DEMO") {
		live, err := showDemo(startCtx, ctx, fleet.Hub)
		if err != nil {
			return err
		}
		defer live()
	}
	if err := os.WriteFile(readyFile, nil, 0o600); err != nil {
		return err
	}
	fmt.Printf("==> ready after %.1fs\n", time.Since(begin).Seconds())
	if set("ONCE") {
		return shown
	}
	if shown != nil {
		fmt.Printf("==> the session ended early, but the hub keeps running: %v\n", shown)
	}

	config, err := filepath.Abs(hubConfig)
	if err != nil {
		return err
	}
	fmt.Printf("    in another terminal: cd %s && export PATH=$PWD/bin:$PATH KUBECONFIG=%s\n", localhub.Root(), config)
	fmt.Printf("    the managed clusters: kubectl --kubeconfig %s/<cluster>.kubeconfig\n", stateDir)
	fmt.Println("    Ctrl-C stops everything; the data stays for the next run")
	if failed := firstExit(ctx, fleet.Processes()); failed != nil {
		fmt.Printf("\n==> %v\n", failed.Failure())
		return fmt.Errorf("%s exited", failed.Name)
	}
	return nil
}

// set reports whether an environment variable is set, and not to 0.
func set(name string) bool {
	value := os.Getenv(name)
	return value != "" && value != "0"
}

// lock makes sure that no other run uses the state directory.
func lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// A killed run releases its lock after a moment.
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Second, true, func(context.Context) (bool, error) {
		return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
	})
	if err != nil {
		holder, _ := io.ReadAll(file)
		_ = file.Close()
		return nil, fmt.Errorf("another run (process %s) uses %s; stop it first", strings.TrimSpace(string(holder)), stateDir)
	}
	if err := file.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(file, os.Getpid()); err != nil {
		return nil, err
	}
	// The end of the process also releases the lock.
	return func() { _ = file.Close() }, nil
}

// start starts the fleet.
func start(ctx context.Context, fleet *localhub.Fleet) error {
	if err := fleet.Hub.WriteAdminKubeconfig(hubConfig); err != nil {
		return err
	}
	for _, member := range fleet.Members {
		if err := member.WriteAdminKubeconfig(kubeconfigOf(member.Cluster)); err != nil {
			return err
		}
	}
	return fleet.Start(ctx)
}

// session shows that the fleet works.
func session(ctx context.Context, fleet *localhub.Fleet, options localhub.FleetOptions) error {
	fmt.Println()
	fmt.Printf("$ export PATH=$PWD/bin:$PATH KUBECONFIG=%s\n", hubConfig)
	if err := showRegistration(ctx); err != nil {
		return err
	}
	for _, name := range options.IRSA {
		if err := showAWS(options.AWS, name); err != nil {
			return err
		}
	}
	return transcript(ctx, fleet)
}

func stop(fleet *localhub.Fleet) error {
	begin := time.Now()
	fmt.Println("==> stopping")
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := errors.Join(os.RemoveAll(readyFile), fleet.Stop(ctx))
	fmt.Printf("==> stopped in %.1fs\n", time.Since(begin).Seconds())
	return err
}

// firstExit waits for a process to exit and returns it, or nil if ctx ends first.
func firstExit(ctx context.Context, processes []*localhub.Process) *localhub.Process {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, process := range processes {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(process.Exited())})
	}
	chosen, _, _ := reflect.Select(cases)
	if chosen == 0 || ctx.Err() != nil {
		return nil
	}
	return processes[chosen-1]
}
