package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/browser"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// rendered waits until the modules of the page have shown something.
func rendered(t *testing.T, p *browser.Page) {
	t.Helper()
	framework.Eventually(t, "the page shows text", func(context.Context) error {
		if strings.TrimSpace(p.Text()) == "" {
			return errors.New("it is empty")
		}
		return nil
	})
}

// loaded returns an error unless the server has sent all files that the page requested.
func loaded(p *browser.Page) error {
	files := 0
	for _, request := range p.Requests() {
		if !strings.Contains(request.URL, consolePath) {
			continue
		}
		if files++; request.Status != http.StatusOK {
			return fmt.Errorf("%s %s = %d, want 200", request.Method, request.URL, request.Status)
		}
	}
	if files < 3 {
		return fmt.Errorf("files that the browser requested = %d, want at least 3", files)
	}
	return nil
}

// TestPage opens the page in a browser, in both ways and as two users.
func TestPage(t *testing.T) {
	f := framework.Shared(t)
	for name, as := range map[string]func(*testing.T, *framework.Fleet) *framework.Caller{"administrator": administrator, "viewer": viewer} {
		for way, open := range map[string]func(*testing.T, *framework.Caller) string{
			"clusteradm console": func(t *testing.T, caller *framework.Caller) string { return openConsole(t, caller).first },
			"kubectl proxy": func(t *testing.T, caller *framework.Caller) string {
				_, port, _ := strings.Cut(start(t, caller, "kubectl", "proxy", "--port=0").first, "127.0.0.1:")
				return "http://127.0.0.1:" + port + consolePath + "index.html"
			},
		} {
			t.Run(name+" through "+way, func(t *testing.T) {
				p := browser.Open(t, open(t, as(t, f)))
				rendered(t, p)
				if at := p.Location(); !strings.Contains(at, consolePath+"index.html") {
					t.Errorf("URL of the page = %s, want one below %s", at, consolePath)
				}
				framework.Eventually(t, "the files of the page are loaded", func(context.Context) error { return loaded(p) })
				p.WantQuiet()
				p.WantAccessible()
			})
		}
	}
}

// TestPagePolicy checks that the browser enforces the policy of the page.
func TestPagePolicy(t *testing.T) {
	p := browser.Open(t, openConsole(t, administrator(t, framework.Shared(t))).first)
	rendered(t, p)
	for what, script := range map[string]string{
		"an inline script": `new Promise((done) => {
			const script = document.createElement("script");
			try { script.textContent = "window.ran = true"; } catch (error) { done("refused"); return; }
			document.body.append(script);
			done(window.ran ? "ran" : "refused");
		})`,
		"a text as markup":             `(() => { try { document.body.innerHTML = "<b>x</b>"; return "ran"; } catch (error) { return "refused"; } })()`,
		"a request to another origin":  `fetch("http://127.0.0.1:1/").then(() => "ran", () => "refused")`,
		"a request without the secret": `fetch("/").then((answer) => answer.status === 403 ? "refused" : "ran")`,
	} {
		if got := browser.Evaluate[string](p, script); got != "refused" {
			t.Errorf("%s in the page: %s, want refused", what, got)
		}
	}
	if problems := strings.Join(p.Problems(), "\n"); !strings.Contains(problems, "Content Security Policy") {
		t.Errorf("the browser reports %q, want violations of the Content Security Policy", problems)
	}
	for _, request := range p.Requests() {
		if strings.HasPrefix(request.URL, "http://127.0.0.1:1/") && request.Status != 0 {
			t.Errorf("request to %s = %d, want none", request.URL, request.Status)
		}
	}
}
