package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/routing-operator/routing-operator/internal/cli"
	"github.com/routing-operator/routing-operator/internal/validate"
)

const manyModels = 10_000

// BenchmarkManyModels runs whole commands on the files of a site with 10,000 models, in as many policies as that takes,
// once with what a model has at least and once with every setting that a large site sets. Beside this a process takes
// what BenchmarkTheLeast shows.
func BenchmarkManyModels(b *testing.B) {
	for _, shape := range []struct{ name, settings string }{
		{"small models", "pulsar\n    seed: s-%05d\n"},
		{"full models", `pulsar-wait-and-widen
    seed: model-%05d-v1
    cacheAffinityBackendSelectionCount: 2
    cacheAffinityWaitMs: 200
    maxQueueTimeFloorMs: 500
    maxQueueTimeCeilMs: 2000
    rendezvousWeight: last-mean-input-tps
    lastClusterAffinity: true
`},
	} {
		site := b.TempDir()
		writeSite(b, site, shape.settings)
		for _, command := range []string{"validate", "render"} {
			b.Run(command+" of "+shape.name, func(b *testing.B) {
				for b.Loop() {
					bench(b, command, "-f", site, "--stargate-version", "V3")
				}
			})
		}
	}
}

// BenchmarkTheLeast is the part of the above that does not depend on the number of models.
func BenchmarkTheLeast(b *testing.B) {
	file := filepath.Join(b.TempDir(), "plane.yaml")
	if err := os.WriteFile(file, []byte(plane), 0o600); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		bench(b, "validate", "-f", file, "--stargate-version", "V3")
	}
}

// writeSite writes a plane and policies, a file for each.
func writeSite(b *testing.B, folder, settings string) {
	b.Helper()
	files := map[string]string{"plane.yaml": plane}
	for first := 0; first < manyModels; first += validate.MaxModels {
		var text strings.Builder
		name := fmt.Sprintf("p-%05d", first)
		fmt.Fprintf(&text, "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: %s, namespace: nvcf}\nspec:\n  planeRef: {name: llm}\n  models:\n", name)
		for i := first; i < min(first+validate.MaxModels, manyModels); i++ {
			fmt.Fprintf(&text, "  - name: vendor-%d/model-%05d\n    algorithm: "+settings, i%40, i, i)
		}
		files[name+".yaml"] = text.String()
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

func bench(b *testing.B, args ...string) {
	b.Helper()
	var out, errs bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs}
	if code := cli.Run(b.Context(), args, streams, clocktesting.NewFakePassiveClock(now)); code != 0 {
		b.Fatalf("exit code %d: %s%s", code, out.String(), errs.String())
	}
}
