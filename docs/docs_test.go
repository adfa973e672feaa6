// Package docs has no code: its tests hold the documentation to what there is.
package docs

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/routing-operator/routing-operator/internal/cli"
)

// sources are the texts of all tests of the repository.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git" || entry.Name() == "docs"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestEveryTestThatTheFailureModesNameExists(t *testing.T) {
	page, err := os.ReadFile("failure-modes.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, reports := sources(t), 0
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.SplitSeq(string(page), "\n") {
		if !strings.HasPrefix(line, "| BL-") {
			continue
		}
		reports++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		names := quoted.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(names) == 0 {
			t.Errorf("no test is named in %q", line)
		}
		for _, name := range names {
			want := name[1]
			if strings.HasPrefix(want, "Test") {
				want = "func " + want + "(t *testing.T)"
			}
			if !strings.Contains(tests, want) {
				t.Errorf("%s: there is no test %q", cells[0], name[1])
			}
		}
	}
	if reports != 49 {
		t.Errorf("%d reports, want 49", reports)
	}
}

func TestEveryLinkOfTheDocumentationLeadsSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, page := range append(pages, filepath.Join("..", "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), to[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, to[1])
			}
		}
	}
}

// TestTheFirstPolicyOfTheReadmeIsTakenWithoutAWord holds what a newcomer applies first to the strictest check, for the
// release that its plane states.
func TestTheFirstPolicyOfTheReadmeIsTakenWithoutAWord(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```yaml\napiVersion: routing.nvcf.io/")
	first, _, found := strings.Cut(rest, "```")
	if !found || strings.Count(first, "\nkind: ") != 2 {
		t.Fatalf("no plane and policy in the README, but\n%s", first)
	}
	var out, errs bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader("apiVersion: routing.nvcf.io/" + first), Out: &out, ErrOut: &errs}
	code := cli.Run(t.Context(), []string{"validate", "--strict", "-f", "-", "--stargate-version", "V3"}, streams, clock.RealClock{})
	if code != 0 || out.Len() > 0 {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}
