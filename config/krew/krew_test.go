// Package krew checks the manifest that is given to krew.
package krew

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

//go:embed routing.yaml
var manifest string

func TestEveryPlatformHasItsOwnArchiveAndChecksum(t *testing.T) {
	var plugin struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Version          string `json:"version"`
			Homepage         string `json:"homepage"`
			ShortDescription string `json:"shortDescription"`
			Description      string `json:"description"`
			Caveats          string `json:"caveats"`
			Platforms        []struct {
				Selector struct {
					MatchLabels map[string]string `json:"matchLabels"`
				} `json:"selector"`
				URI    string `json:"uri"`
				SHA256 string `json:"sha256"`
				Bin    string `json:"bin"`
			} `json:"platforms"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(manifest), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Metadata.Name != "routing" || plugin.Spec.Version != "@VERSION@" {
		t.Errorf("got %s %s", plugin.Metadata.Name, plugin.Spec.Version)
	}
	if n := len(plugin.Spec.ShortDescription); n == 0 || n > 50 {
		t.Errorf("krew's index takes up to 50 characters, and the short description has %d", n)
	}
	if len(plugin.Spec.Platforms) < 5 {
		t.Errorf("only %d platforms", len(plugin.Spec.Platforms))
	}
	for _, p := range plugin.Spec.Platforms {
		platform := p.Selector.MatchLabels["os"] + "-" + p.Selector.MatchLabels["arch"]
		if want := fmt.Sprintf("@URL@/kubectl-routing-%s.tar.gz", platform); p.URI != want {
			t.Errorf("%s: %s, want %s", platform, p.URI, want)
		}
		if want := fmt.Sprintf("@SHA256-%s@", platform); p.SHA256 != want {
			t.Errorf("%s: %s, want %s", platform, p.SHA256, want)
		}
		if strings.HasPrefix(platform, "windows") != strings.HasSuffix(p.Bin, ".exe") {
			t.Errorf("%s: %s", platform, p.Bin)
		}
	}
}
