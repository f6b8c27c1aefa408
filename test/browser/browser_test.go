package browser

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// sample is a page with a field, a button below the screen, and an image without text, which axe reports.
const sample = `<!doctype html><html lang="en"><title>Sample</title><main><h1>Sample</h1>
<label>Name <input value="before"></label><p role="status"></p><div style="height: 3000px"></div><button>Greet</button><img src="data:,"></main>
<script>
const [field, said] = [document.querySelector("input"), document.querySelector("p")];
document.querySelector("button").onclick = () => said.textContent = "hello " + field.value;
field.onkeydown = ({key}) => { if (key === "Enter") said.textContent = "entered " + field.value; };
</script>`

// TestPage uses a page as the tests of the console do.
func TestPage(t *testing.T) {
	p := Open(t, "data:text/html,"+url.PathEscape(sample))
	p.Fill("textbox", "Name", "alice")
	p.Click("button", "Greet")
	p.AwaitText("hello alice")
	p.Fill("textbox", "Name", "")
	p.Press("bob" + kb.Enter)
	p.AwaitText("entered bob")
	if buttons := p.ByRole("button"); len(buttons) != 1 || buttons[0].Name != "Greet" {
		t.Errorf("ByRole(button) = %v, want Greet", buttons)
	}
	if html := p.HTML(); !strings.Contains(html, `<p role="status">entered bob</p>`) {
		t.Errorf("HTML() = %s, want the status", html)
	}
	p.Resize(320, 480)
	if width := Evaluate[int](p, "innerWidth"); width < 320 || width > 400 {
		t.Errorf("innerWidth after Resize(320, 480) = %d, want 320", width)
	}
	dir := t.TempDir()
	p.Screenshot(dir, "sample")
	if image, err := os.ReadFile(filepath.Join(dir, "sample.png")); err != nil || !bytes.HasPrefix(image, []byte("\x89PNG")) {
		t.Errorf("Screenshot() = %d bytes, error %v, want a PNG", len(image), err)
	}
	if violations := p.Violations(); !slices.ContainsFunc(violations, func(v string) bool { return strings.HasPrefix(v, "image-alt") }) {
		t.Errorf("Violations() = %q, want image-alt", violations)
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("Problems() = %q, want none", problems)
	}
	Evaluate[bool](p, `console.error("broken"), setTimeout(() => { throw new Error("thrown") }), new Promise((done) => setTimeout(() => done(true)))`)
	if problems := strings.Join(p.Problems(), "\n"); !strings.Contains(problems, "broken") || !strings.Contains(problems, "thrown") {
		t.Errorf("Problems() = %s, want the error and the exception", problems)
	}
	if requests := p.Requests(); len(requests) == 0 || requests[0].Method != "GET" {
		t.Errorf("Requests() = %v, want the page", requests)
	}
}
