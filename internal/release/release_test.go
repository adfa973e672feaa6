package release

import (
	"strings"
	"testing"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestOfImage(t *testing.T) {
	table, err := ParseTable(map[string]string{"V0": "0.10.0", "V1": "0.18.0", "V2": "0.20.0", "V3": "0.22.0"})
	if err != nil {
		t.Fatal(err)
	}
	stated := []v1alpha1.ReleaseOverride{
		{Image: "router:latest", Version: "V3"},
		{Image: "router:0.10.1", Version: "0.22.1"},
	}
	tests := map[string]struct {
		image string
		want  Release
	}{
		"a tag is the release":                        {"host.example/a/router:0.14.1", Release{"0.14.1", V0}},
		"a leading v does not matter":                 {"router:v0.18.0", Release{"0.18.0", V1}},
		"a tag beside a digest is the release":        {"repo:v0.18.0@" + digest, Release{"0.18.0", V1}},
		"a digest alone is unknown":                   {"host:5000/repo@" + digest, Release{"unknown", Unknown}},
		"a registry's port is no tag":                 {"host:5000/repo", Release{"unknown", Unknown}},
		"a tag behind a registry's port is read":      {"host:5000/repo:0.20.3", Release{"0.20.3", V2}},
		"a pre-release is older than its release":     {"repo:v0.18.0-rc1", Release{"0.18.0-rc1", V0}},
		"latest is unknown":                           {"repo:latest", Release{"unknown", Unknown}},
		"two numbers are no release":                  {"repo:0.18", Release{"unknown", Unknown}},
		"a commit is no release":                      {"repo:sha-abc123", Release{"unknown", Unknown}},
		"a malformed reference is unknown":            {"REPO:5000", Release{"unknown", Unknown}},
		"nothing is unknown":                          {"", Release{"unknown", Unknown}},
		"a release before the first is unsupported":   {"repo:0.9.4", Release{"0.9.4", Unsupported}},
		"a statement gives an unreadable tag meaning": {"router:latest", Release{"V3", V3}},
		"a statement counts before the tag":           {"router:0.10.1", Release{"0.22.1", V3}},
		"a statement is about the whole image":        {"host.example/router:latest", Release{"unknown", Unknown}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := table.OfImage(test.image, stated); got != test.want {
				t.Errorf("OfImage(%q) = %+v, want %+v", test.image, got, test.want)
			}
		})
	}
}

func TestDefaultTableNeverGuessesAGenerationThatNobodyStated(t *testing.T) {
	for image, want := range map[string]Generation{"r:0.17.9": V0, "r:0.18.0": V1, "r:0.99.0": V1, "r:7.0.0": V1} {
		if got := DefaultTable().OfImage(image, nil).Generation; got != want {
			t.Errorf("%s: generation %s, want %s", image, got, want)
		}
	}
}

func TestParseTableRefuses(t *testing.T) {
	tests := map[string]struct {
		in   map[string]string
		want string
	}{
		"a generation that does not exist":     {map[string]string{"V0": "0.10.0", "V9": "1.0.0"}, `"V9" is no generation`},
		"a release that is none":               {map[string]string{"V0": "0.10"}, `first release of V0: "0.10" is no release`},
		"a table without its first generation": {map[string]string{"V1": "0.18.0"}, "first release of V0 is missing"},
		"generations in the wrong order":       {map[string]string{"V0": "0.10.0", "V1": "0.9.0"}, "V1 begins at 0.9.0, before V0 at 0.10.0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseTable(test.in); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
