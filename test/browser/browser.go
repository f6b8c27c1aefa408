// Package browser drives Chromium in tests of the console.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// pathVariable is the variable with the path of another Chromium, or with noBrowser.
const (
	pathVariable = "HUB_CHROMIUM"
	noBrowser    = "none"
)

var programs = []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"}

// axe is the accessibility checker axe-core: see pkg/console/vendor.md.
//
//go:embed testdata/axe.min.js
var axe string

// chromium returns the path of Chromium.
func chromium() (string, error) {
	candidates := programs
	if other := os.Getenv(pathVariable); other != "" {
		candidates = []string{other}
	}
	for _, candidate := range candidates {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %q is on the PATH: run make chromium, or set %s to the path of Chromium; %s=%s skips the tests that need it", candidates, pathVariable, pathVariable, noBrowser)
}

// running starts the Chromium of the tests of a package, which stops after the last test.
var running = sync.OnceValues(func() (context.Context, error) {
	path, err := chromium()
	if err != nil {
		return nil, err
	}
	dir, err := framework.TempDir()
	if err != nil {
		return nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(dir, "chromium")))
	if os.Getuid() == 0 {
		// The sandbox of Chromium refuses to run as root.
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	framework.StopAtEnd(func(limit context.Context) error {
		defer stop()
		stopping, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(limit, cancel)()
		return chromedp.Cancel(stopping)
	})
	return ctx, nil
})

// Request is a request of a page.
type Request struct {
	Method, URL string
	// Status is the status code of the response, or 0 before it arrives.
	Status int64
	// Finished is true if the body of the response is complete.
	Finished bool

	id network.RequestID
}

// Page is a page in a browser of its own: it shares no cookies and no cache with others.
type Page struct {
	t   testing.TB
	ctx context.Context
	// Close closes the page before the end of the test.
	Close func()

	mu       sync.Mutex
	requests []Request
	byID     map[network.RequestID]int
	problems []string
}

// Open opens a page. The test is skipped if HUB_CHROMIUM is none, and fails if there is no Chromium.
func Open(t testing.TB, address string) *Page {
	t.Helper()
	if os.Getenv(pathVariable) == noBrowser {
		t.Skipf("%s=%s", pathVariable, noBrowser)
	}
	parent, err := running()
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, byID: map[network.RequestID]int{}}
	var cancel context.CancelFunc
	p.ctx, cancel = chromedp.NewContext(parent, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.Close = sync.OnceFunc(cancel)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page at the end:\n%s\nrequests: %v", p.textOrError(), p.Requests())
		}
		p.Close()
	})
	if err := chromedp.Do(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.Navigate(address)
	return p
}

// listen records requests, messages on the console and exceptions.
func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if e.RedirectResponse != nil {
			p.requests[p.byID[e.RequestID]].Status = e.RedirectResponse.Status
		}
		p.byID[e.RequestID] = len(p.requests)
		p.requests = append(p.requests, Request{Method: e.Request.Method, URL: e.Request.URL + e.Request.URLFragment, id: e.RequestID})
	case *network.EventResponseReceived:
		if i, known := p.byID[e.RequestID]; known {
			p.requests[i].Status = e.Response.Status
		}
	case *network.EventLoadingFinished:
		if i, known := p.byID[e.RequestID]; known {
			p.requests[i].Finished = true
		}
	case *log.EventEntryAdded:
		// Requests that fail are in the list of requests.
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			p.problems = append(p.problems, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		problem := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			problem += " " + e.ExceptionDetails.Exception.Description
		}
		p.problems = append(p.problems, problem)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			p.problems = append(p.problems, fmt.Sprintf("console.error(%s)", framework.ToJSON(e.Args)))
		}
	}
}

// within runs an action with a deadline.
func within[T any](p *Page, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, await.Patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// must runs an action that must not fail.
func must[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	out, err := within(p, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// Navigate opens another URL.
func (p *Page) Navigate(address string) {
	p.t.Helper()
	must(p, chromedp.Navigate(address))
}

// Location returns the URL of the page.
func (p *Page) Location() string {
	p.t.Helper()
	return must(p, chromedp.Location())
}

// Requests returns all requests of the page until now.
func (p *Page) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Body returns the body of the response to a finished request of the open document.
func (p *Page) Body(r Request) string {
	p.t.Helper()
	found := must(p, func(ctx context.Context, target *chromedp.Target) (network.GetResponseBodyResult, error) {
		return cdp.Call(ctx, target, network.GetResponseBody, network.GetResponseBodyParams{RequestID: r.id})
	})
	return string(found.Body)
}

// WantQuiet fails the test if the page sent a request to another origin, or if the browser reported an exception, an error
// or a violation of the Content-Security-Policy.
func (p *Page) WantQuiet() {
	p.t.Helper()
	at, err := url.Parse(p.Location())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, request := range p.Requests() {
		to, err := url.Parse(request.URL)
		if err != nil || to.Scheme != at.Scheme || to.Host != at.Host {
			p.t.Errorf("request to %s (error %v), want none outside of %s", request.URL, err, at.Host)
		}
	}
	if problems := p.Problems(); len(problems) > 0 {
		p.t.Errorf("the browser reports %q, want nothing", problems)
	}
}

// Problems returns the exceptions, errors and policy violations that the browser has reported until now.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// Text returns the text of the page, as a user sees it.
func (p *Page) Text() string {
	p.t.Helper()
	return must(p, chromedp.Evaluate[string](`document.body.innerText`))
}

func (p *Page) textOrError() string {
	text, err := within(p, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// HTML returns the elements of the page as text.
func (p *Page) HTML() string {
	p.t.Helper()
	return must(p, chromedp.Evaluate[string](`document.documentElement.outerHTML`))
}

// AwaitText waits until the page shows a text.
func (p *Page) AwaitText(text string) {
	p.t.Helper()
	framework.Eventually(p.t, fmt.Sprintf("the page shows %q", text), func(context.Context) error {
		shown, err := within(p, chromedp.Evaluate[string](`document.body.innerText`))
		if err == nil && !strings.Contains(shown, text) {
			err = fmt.Errorf("it shows %q", shown)
		}
		return err
	})
}

// Evaluate runs a JavaScript expression in a page, waits for its promise, and returns its value.
func Evaluate[T any](p *Page, expression string) T {
	p.t.Helper()
	return must(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// HeapBytes returns the size of the JavaScript heap after a garbage collection.
func (p *Page) HeapBytes() float64 {
	p.t.Helper()
	return must(p, func(ctx context.Context, target *chromedp.Target) (float64, error) {
		if _, err := cdp.Call(ctx, target, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return 0, err
		}
		usage, err := cdp.Call(ctx, target, runtime.GetHeapUsage, cdp.Empty{})
		if err != nil {
			return 0, err
		}
		return usage.UsedSize, nil
	})
}

// Named is an element with its accessible name.
type Named struct {
	Name string
	id   cdp.BackendNodeID
}

// ByRole returns the elements with a role, as a screen reader finds them.
func (p *Page) ByRole(role string) []Named {
	p.t.Helper()
	return must(p, byRole(role))
}

func byRole(role string) chromedp.Action[[]Named] {
	return func(ctx context.Context, target *chromedp.Target) ([]Named, error) {
		document, err := cdp.Call(ctx, target, runtime.Evaluate, runtime.EvaluateParams{Expression: "document"})
		if err != nil {
			return nil, err
		}
		found, err := cdp.Call(ctx, target, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{ObjectID: document.Result.ObjectID, Role: role})
		if err != nil {
			return nil, err
		}
		var out []Named
		for _, node := range found.Nodes {
			if node.Ignored || node.BackendDOMNodeID == 0 {
				continue
			}
			one := Named{id: node.BackendDOMNodeID}
			if node.Name != nil {
				if err := json.Unmarshal(node.Name.Value, &one.Name); err != nil {
					return nil, err
				}
			}
			out = append(out, one)
		}
		return out, nil
	}
}

// Await waits until the page has an element with a role and an accessible name, and returns it. An empty name matches
// every name.
func (p *Page) Await(role, name string) Named {
	p.t.Helper()
	var element Named
	framework.Eventually(p.t, fmt.Sprintf("the page has a %s %q", role, name), func(context.Context) error {
		found, err := within(p, byRole(role))
		if err != nil {
			return err
		}
		var names []string
		for _, one := range found {
			if name == "" || one.Name == name {
				element = one
				return nil
			}
			names = append(names, one.Name)
		}
		return fmt.Errorf("the names of its elements with this role are %q", names)
	})
	return element
}

// Click clicks on the element with a role and an accessible name.
func (p *Page) Click(role, name string) {
	p.t.Helper()
	element := p.Await(role, name)
	must(p, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdp.Call(ctx, target, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: element.id}); err != nil {
			return err
		}
		found, err := cdp.Call(ctx, target, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: element.id})
		if err != nil {
			return err
		}
		if len(found.Quads) == 0 || len(found.Quads[0]) != 8 {
			return errors.New("the element has no place on the page")
		}
		q := found.Quads[0]
		_, err = chromedp.MouseClickXY((q[0]+q[2]+q[4]+q[6])/4, (q[1]+q[3]+q[5]+q[7])/4)(ctx, target)
		return err
	}))
}

// Fill replaces the text of the field with a role and an accessible name, as one who pastes it.
func (p *Page) Fill(role, name, text string) {
	p.t.Helper()
	element := p.Await(role, name)
	must(p, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdp.Call(ctx, target, dom.Focus, dom.FocusParams{BackendNodeID: element.id}); err != nil {
			return err
		}
		if _, err := chromedp.Evaluate[bool](`document.activeElement.select(), true`)(ctx, target); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, target, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}

// Press presses keys, one after the other: text, or keys of github.com/chromedp/chromedp/kb.
func (p *Page) Press(keys string) {
	p.t.Helper()
	must(p, chromedp.KeyEvent(keys))
}

// Resize changes the size of the page.
func (p *Page) Resize(width, height int64) {
	p.t.Helper()
	must(p, chromedp.EmulateViewport(width, height))
}

// Screenshot writes a screenshot to NAME.png in a directory.
func (p *Page) Screenshot(directory, name string) {
	p.t.Helper()
	image := must(p, chromedp.CaptureScreenshot())
	if err := errors.Join(os.MkdirAll(directory, 0o755), os.WriteFile(filepath.Join(directory, name+".png"), image, 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// WantAccessible fails the test if axe finds a violation in the page.
func (p *Page) WantAccessible() {
	p.t.Helper()
	if violations := p.Violations(); len(violations) > 0 {
		p.t.Errorf("axe finds %s, want no violation", framework.ToJSON(violations))
	}
}

// Violations returns the violations of accessibility rules that axe finds in the page.
func (p *Page) Violations() []string {
	p.t.Helper()
	must(p, chromedp.Evaluate[bool](axe+";true"))
	return Evaluate[[]string](p, `axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
		violations.map(({id, help, nodes}) => id + ": " + help + ": " + nodes.map(({target}) => target.join(" ")).join(", ")))`)
}
