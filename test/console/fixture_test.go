// Package console tests the console: how the hub serves it, how clusteradm opens it, and the page in a browser.
package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.RunSharing(m, 2)) }

const (
	consoleRole = "open-cluster-management:console:use"
	searchRole  = "open-cluster-management:search:use"
	viewRole    = "open-cluster-management:search:view-cluster"

	api         = "/apis/" + searchv1alpha1.GroupName + "/v1alpha1"
	consolePath = api + "/console/"
)

var getConsole = rbacv1.PolicyRule{APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"console"}, Verbs: []string{"get"}}

// administrator returns a user of the hub with all permissions.
func administrator(t *testing.T, f *framework.Fleet) *framework.Caller {
	t.Helper()
	return framework.NewCaller(t, f.Hub, framework.Unique("administrator"), "system:masters")
}

// viewer returns a user who may use the console and search, and view one cluster.
func viewer(t *testing.T, f *framework.Fleet) *framework.Caller {
	t.Helper()
	return viewerOf(t, f, framework.Cluster1)
}

func viewerOf(t *testing.T, f *framework.Fleet, cluster string) *framework.Caller {
	t.Helper()
	caller := framework.NewCaller(t, f.Hub, framework.Unique("viewer"))
	bindEverywhere(t, caller, consoleRole)
	bindEverywhere(t, caller, searchRole)
	caller.Bind(t, cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
	caller.AwaitAllowed(t, "", getConsole)
	return caller
}

// bindEverywhere binds a ClusterRole of the hub to a caller until the end of the test.
func bindEverywhere(t *testing.T, caller *framework.Caller, role string) {
	t.Helper()
	bindings := caller.HubClient.RbacV1().ClusterRoleBindings()
	binding := framework.Must(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Subjects: []rbacv1.Subject{caller.Subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// printed collects the output of a program.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(content []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(content)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// program is a program that runs until the end of the test.
type program struct {
	command *exec.Cmd
	// first is the first line of its standard output.
	first  string
	errOut printed
	once   sync.Once
	exit   error
}

// start starts a program of bin as a caller, and waits for the first line of its output.
func start(t *testing.T, caller *framework.Caller, name string, args ...string) *program {
	t.Helper()
	path := framework.Must(localhub.Binary(localhub.BinDir(), name))(t)
	p := &program{command: exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)}
	p.command.Env = append(p.command.Environ(), "KUBECONFIG="+caller.Kubeconfig)
	p.command.Stderr = &p.errOut
	out := framework.Must(p.command.StdoutPipe())(t)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.stop() })
	limit := time.AfterFunc(await.Patience, func() { _ = p.command.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	limit.Stop()
	if err != nil {
		t.Fatalf("%s %v printed %q, error %v, want a line\n%s", name, args, line, errors.Join(err, p.stop()), p.errOut.String())
	}
	p.first = strings.TrimSpace(line)
	return p
}

// stop interrupts the program, as Ctrl-C does, and returns how it exited.
func (p *program) stop() error {
	p.once.Do(func() {
		_ = p.command.Process.Signal(os.Interrupt)
		limit := time.AfterFunc(await.Patience, func() { _ = p.command.Process.Kill() })
		defer limit.Stop()
		p.exit = p.command.Wait()
	})
	return p.exit
}

// reports waits until the program has printed a text on standard error.
func (p *program) reports(t *testing.T, text string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the program reports %q", text), func(context.Context) error {
		if printed := p.errOut.String(); !strings.Contains(printed, text) {
			return fmt.Errorf("it has reported %q", printed)
		}
		return nil
	})
}

// openConsole runs clusteradm console without a browser. The URL is the first line.
func openConsole(t *testing.T, caller *framework.Caller, args ...string) *program {
	t.Helper()
	return start(t, caller, "clusteradm", append([]string{"console", "--no-browser"}, args...)...)
}

// client sends requests that follow no redirect.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: await.Patience}

// reply is the response to a request.
type reply struct {
	code   int
	header http.Header
	body   string
	// status is the Status in the body, if it is one.
	status metav1.Status
}

// send sends a request. The header Host sets the host, and the body is JSON.
func send(t *testing.T, client *http.Client, method, address, body string, header http.Header) reply {
	t.Helper()
	out, err := trySend(t.Context(), client, method, address, body, header)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func trySend(ctx context.Context, client *http.Client, method, address, body string, header http.Header) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if host := header.Get("Host"); host != "" {
		request.Host = host
		request.Header.Del("Host")
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	out := reply{code: response.StatusCode, header: response.Header, body: string(content)}
	_ = json.Unmarshal(content, &out.status)
	return out, nil
}

// enter opens the URL that clusteradm printed, and returns the URL of the hub behind the proxy.
func enter(t *testing.T, opened string) string {
	t.Helper()
	answer := send(t, client, http.MethodGet, opened, "", http.Header{"Sec-Fetch-Site": {"none"}})
	location := answer.header.Get("Location")
	prefix, isPage := strings.CutSuffix(location, consolePath+"index.html")
	if answer.code != http.StatusSeeOther || !isPage {
		t.Fatalf("GET %s = %d, location %q, want 303 to the page: %s", opened, answer.code, location, answer.body)
	}
	return framework.Must(url.JoinPath(opened, "..", prefix))(t)
}
