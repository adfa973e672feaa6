package render_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is an x.in.yaml; the file that it renders to is x.out.json.
type golden struct {
	// Generations that render to the very file.
	Generations []string `json:"generations"`
	// Flags that are on, by model, with "plane" for the plane's; or "all".
	Flags             []string                    `json:"flags"`
	DefaultAlgorithm  v1alpha1.Algorithm          `json:"defaultAlgorithm"`
	RequestAlgorithms []v1alpha1.RequestAlgorithm `json:"requestAlgorithms"`
	Models            []v1alpha1.Model            `json:"models"`
}

func (g golden) config() render.Config {
	return render.Config{DefaultAlgorithm: g.DefaultAlgorithm, RequestAlgorithms: g.RequestAlgorithms, Models: g.Models}
}

func (g golden) on() render.Flags {
	if slices.Equal(g.Flags, []string{"all"}) {
		return render.Desired(g.config())
	}
	units := sets.New[render.Unit]()
	for _, name := range g.Flags {
		if name == "plane" {
			units.Insert(render.Unit{Plane: true})
			continue
		}
		units.Insert(render.Unit{Model: name})
	}
	return render.OfUnits(render.Desired(g.config()), units.UnsortedList()...)
}

func TestGoldenFiles(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			var in golden
			if err := yaml.UnmarshalStrict(raw, &in); err != nil {
				t.Fatalf("%s: %v", input, err)
			}
			if len(in.Generations) == 0 {
				t.Fatalf("%s names no generation", input)
			}
			output := filepath.Join("testdata", name+".out.json")
			for i, stated := range in.Generations {
				g, ok := release.ParseGeneration(stated)
				if !ok {
					t.Fatalf("%s: %q is no generation", input, stated)
				}
				rendered, err := render.LBConfig(in.config(), in.on(), g)
				if err != nil {
					t.Fatal(err)
				}
				if *update && i == 0 {
					if err := os.WriteFile(output, rendered.Data, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(output)
				if err != nil {
					t.Fatalf("%v (go test ./internal/render -update writes it)", err)
				}
				if string(rendered.Data) != string(want) {
					t.Errorf("%s: rendered\n%s\nwant\n%s", g, rendered.Data, want)
				}
				file, err := lbconfig.Read(rendered.Data, g)
				if err != nil {
					t.Errorf("Stargate %s refuses the file: %v", g, err)
				} else if len(file.Findings) > 0 {
					t.Errorf("Stargate %s passes over %+v", g, file.Findings)
				}
			}
		})
	}
}

func TestEveryGoldenOutputHasItsInput(t *testing.T) {
	outputs, err := filepath.Glob("testdata/*.out.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range outputs {
		if _, err := os.Stat(strings.TrimSuffix(output, ".out.json") + ".in.yaml"); err != nil {
			t.Errorf("%s: %v", output, err)
		}
	}
}
