package validate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// entries are the three schemas that hold the settings of an algorithm.
func entries(t *testing.T) map[string]apiextensionsv1.JSONSchemaProps {
	t.Helper()
	schema := func(file string) apiextensionsv1.JSONSchemaProps {
		data, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", file))
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatal(err)
		}
		return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	}
	model := *schema("routing.nvcf.io_routingpolicies.yaml").Properties["models"].Items.Schema
	return map[string]apiextensionsv1.JSONSchemaProps{
		"a model":                       model,
		"a model's request algorithm":   *model.Properties["requestAlgorithms"].Items.Schema,
		"the plane's request algorithm": *schema("routing.nvcf.io_routingplanes.yaml").Properties["stargate"].Properties["requestAlgorithms"].Items.Schema,
	}
}

func words[S ~string](list []S, format, separator string) string {
	var all []string
	for _, s := range list {
		all = append(all, fmt.Sprintf(format, s))
	}
	return strings.Join(all, separator)
}

func TestTheCRDsSayTheTableOfFields(t *testing.T) {
	for where, schema := range entries(t) {
		var rules []apiextensionsv1.ValidationRule
		for _, f := range validate.Fields() {
			if len(f.Algorithms) == len(validate.Algorithms()) {
				continue
			}
			others := slices.DeleteFunc(validate.Algorithms(), f.SupportedBy)
			rules = append(rules, apiextensionsv1.ValidationRule{
				FieldPath: "." + f.Name,
				Rule:      fmt.Sprintf("!has(self.%s) || !(self.algorithm in [%s])", f.Name, words(others, "'%s'", ", ")),
				MessageExpression: fmt.Sprintf("'%s is not supported by algorithm ' + self.algorithm + '; supported by: %s; remove the field or change the algorithm'",
					f.Name, words(f.Algorithms, "%s", ", ")),
			})
		}
		for _, rule := range rules {
			if !slices.ContainsFunc(schema.XValidations, func(r apiextensionsv1.ValidationRule) bool { return reflect.DeepEqual(r, rule) }) {
				t.Errorf("%s: no rule in the CRD is\n%+v", where, rule)
			}
		}
		for _, rule := range schema.XValidations {
			if strings.Contains(rule.Rule, "self.algorithm in") && !slices.ContainsFunc(rules, func(r apiextensionsv1.ValidationRule) bool { return reflect.DeepEqual(r, rule) }) {
				t.Errorf("%s: the table of fields does not have the CRD's rule\n%+v", where, rule)
			}
		}
	}
}

func TestDescriptionsNameWhatAUserHasToKnow(t *testing.T) {
	for where, schema := range entries(t) {
		described := 0
		for _, f := range validate.Fields() {
			property, ok := schema.Properties[f.Name]
			if !ok {
				t.Errorf("%s has no field %s", where, f.Name)
				continue
			}
			described++
			text := strings.Join(strings.Fields(property.Description), " ")
			want := append([]string{"Default"}, f.Values...)
			if len(f.Algorithms) == len(validate.Algorithms()) {
				want = append(want, "For all algorithms.")
			} else {
				want = append(want, strings.Fields(words(f.Algorithms, "%s", " "))...)
			}
			if f.Since > release.V0 {
				want = append(want, "Since generation "+f.Since.String())
			}
			for _, w := range want {
				if !strings.Contains(text, w) {
					t.Errorf("%s: the description of %s does not say %q:\n%s", where, f.Name, w, property.Description)
				}
			}
		}
		if extra := len(schema.Properties) - described; (where == "a model" && extra != 3) || (where != "a model" && extra != 2) {
			t.Errorf("%s has %d fields that are not in the table of fields", where, extra)
		}
	}
}

func TestTheTableNamesFieldsAsStargateDoes(t *testing.T) {
	for name, want := range map[string]string{"n": "n", "ttftBucketSizeMs": "ttft_bucket_size_ms", "considerKvFreeTokens": "consider_kv_free_tokens"} {
		i := slices.IndexFunc(validate.Fields(), func(f validate.Field) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no field %s", name)
		}
		f := validate.Fields()[i]
		if got := f.FileName(); got != want {
			t.Errorf("%s is %s in the file, want %s", name, got, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]v1alpha1.Algorithm{"random": "random", "powerof2": "power-of-n", "groq-multiregion": "wait-and-widen", "pulsar-multiregion": "pulsar-wait-and-widen"} {
		if got, ok := validate.Canonical(name); !ok || got != want {
			t.Errorf("Canonical(%q) = %q, %t, want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "Random", " random", "power-of-2", "PowerOfTwo"} {
		if got, ok := validate.Canonical(name); ok {
			t.Errorf("Canonical(%q) = %q, want none", name, got)
		}
	}
}
