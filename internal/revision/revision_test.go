package revision_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/routing-operator/routing-operator/internal/revision"
)

func TestEveryNameOfAPlaneHasALabelValueOfItsOwn(t *testing.T) {
	long := strings.Repeat("a", 70)
	seen := map[string]string{}
	for _, name := range []string{"llm", "llm.prod", long, long + "b", long[:62] + ".b", long[:46] + "-.-" + long} {
		value := revision.Labels(name)[revision.LabelPlane]
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("%s: %q: %v", name, value, problems)
		}
		if other, ok := seen[value]; ok {
			t.Errorf("%s and %s are both %q", name, other, value)
		}
		seen[value] = name
	}
	if got := revision.Labels("llm")[revision.LabelPlane]; got != "llm" {
		t.Errorf("a name that is a label value is %q", got)
	}
}
