package validate

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Policy returns everything that makes the spec of a RoutingPolicy unacceptable, in the order of the spec. Root
// is the path of the spec.
func Policy(spec *v1alpha1.RoutingPolicySpec, root *field.Path) field.ErrorList {
	errs := checkPlaneRef(&spec.PlaneRef, root.Child("planeRef"))
	models := root.Child("models")
	switch {
	case spec.Models == nil:
		return append(errs, field.Required(models, "list the models that the policy configures"))
	case len(spec.Models) > MaxModels:
		return append(errs, field.TooMany(models, len(spec.Models), MaxModels))
	}
	seen := make(sets.Set[string], len(spec.Models))
	for i := range spec.Models {
		model, path := &spec.Models[i], models.Index(i)
		if seen.Has(model.Name) {
			errs = append(errs, field.Duplicate(path, map[string]any{"name": model.Name}))
		}
		seen.Insert(model.Name)
		if tooLong(model.Name, maxModelNameLength) {
			errs = append(errs, field.TooLong(path.Child("name"), model.Name, maxModelNameLength))
		}
		errs = append(errs, checkSettings(&model.AlgorithmSettings, path)...)
		errs = append(errs, checkRequestAlgorithms(model.RequestAlgorithms, path)...)
	}
	return errs
}

func checkPlaneRef(ref *v1alpha1.PlaneReference, path *field.Path) field.ErrorList {
	errs := checkSubdomain(ref.Name, path.Child("name"))
	if ref.Namespace != "" {
		errs = append(errs, checkLabel(ref.Namespace, path.Child("namespace"))...)
	}
	return errs
}

func checkSettings(s *v1alpha1.AlgorithmSettings, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !known(s.Algorithm) {
		errs = checkAlgorithm(s.Algorithm, path.Child("algorithm"))
	}
	for i := range fields {
		errs = append(errs, fields[i].check(s, path)...)
	}
	return errs
}

func checkRequestAlgorithms(list []v1alpha1.RequestAlgorithm, parent *field.Path) field.ErrorList {
	if len(list) == 0 {
		return nil
	}
	path := parent.Child("requestAlgorithms")
	if len(list) > MaxRequestAlgorithms {
		return field.ErrorList{field.TooMany(path, len(list), MaxRequestAlgorithms)}
	}
	var errs field.ErrorList
	seen := sets.New[v1alpha1.Algorithm]()
	for i := range list {
		entry, at := &list[i], path.Index(i)
		if seen.Has(entry.Algorithm) {
			errs = append(errs, field.Duplicate(at, map[string]any{"algorithm": entry.Algorithm}))
		}
		seen.Insert(entry.Algorithm)
		errs = append(errs, checkSettings(&entry.AlgorithmSettings, at)...)
		if len(entry.RequestAlgorithms) > 0 {
			errs = append(errs, field.Invalid(at.Child("requestAlgorithms"), field.OmitValueType{},
				"a request algorithm has no requestAlgorithms of its own (Stargate would drop them in silence); list them beside it"))
		}
	}
	return errs
}

func checkSubdomain(name string, path *field.Path) field.ErrorList {
	return checkFormat(name, validation.DNS1123SubdomainMaxLength, validation.IsDNS1123Subdomain, path,
		"must be a name in lower case: letters, digits, '-' and '.', with a letter or digit at both ends")
}

func checkLabel(name string, path *field.Path) field.ErrorList {
	return checkFormat(name, validation.DNS1123LabelMaxLength, validation.IsDNS1123Label, path,
		"must be a name in lower case: letters, digits and '-', with a letter or digit at both ends")
}

func checkFormat(value string, limit int, check func(string) []string, path *field.Path, rule string) field.ErrorList {
	if errs := checkLength(value, limit, path); len(errs) > 0 {
		return errs
	}
	if len(check(value)) > 0 {
		return field.ErrorList{field.Invalid(path, value, rule)}
	}
	return nil
}
