// Package admit says of an object of the operator's kinds what an API server that has the operator's CRDs and webhook
// would say to somebody who creates it, without an API server.
//
// It runs the API server's own code on the CRDs: unknown fields, defaults, the schema, CEL rules. The rules of
// internal/validate say the same in Go and a great deal faster, so a plain policy, each value of which has the type of
// its field, is judged by them alone; the tests compare.
package admit

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/config/crd"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// Verdict on an object.
type Verdict struct {
	// Unknown are the fields that the API does not have. kubectl and server-side apply refuse the object for them; a
	// client that asks for no validation gets a warning, and they are dropped.
	Unknown []UnknownField
	// Errors for which the object is refused.
	Errors field.ErrorList
	// Policy or Plane is the object, as far as it can be read, with the API's defaults.
	Policy *v1alpha1.RoutingPolicy
	Plane  *v1alpha1.RoutingPlane
}

// Judge judges objects; it can be used by several goroutines.
type Judge struct {
	kinds   map[string]*kind
	options validate.Options
}

type kind struct {
	schema    *structuralschema.Structural
	validator schemavalidation.SchemaValidator

	once  sync.Once
	rules *cel.Validator
}

// New makes a judge by the CRDs that are part of the program, and by the options of the operator's webhook.
func New(options validate.Options) (*Judge, error) {
	j := &Judge{kinds: map[string]*kind{}, options: options}
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("finding the CRDs: %w", err)
	}
	for _, file := range files {
		data, err := fs.ReadFile(crd.Bases, file)
		if err != nil {
			return nil, fmt.Errorf("reading the CRDs: %w", err)
		}
		if err := j.add(data); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return j, nil
}

func (j *Judge) add(data []byte) error {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &definition); err != nil {
		return fmt.Errorf("reading the CRD: %w", err)
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		if version.Name != v1alpha1.GroupVersion.Version {
			continue
		}
		var schema apiextensions.CustomResourceValidation
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, &schema, nil); err != nil {
			return fmt.Errorf("converting the schema: %w", err)
		}
		k := &kind{}
		var err error
		if k.schema, err = structuralschema.NewStructural(schema.OpenAPIV3Schema); err != nil {
			return fmt.Errorf("reading the schema: %w", err)
		}
		if k.validator, _, err = schemavalidation.NewSchemaValidator(schema.OpenAPIV3Schema); err != nil {
			return fmt.Errorf("reading the schema: %w", err)
		}
		j.kinds[definition.Spec.Names.Kind] = k
	}
	return nil
}

// Review judges an object of the operator's group. Object holds JSON values, integers as int64, and is not kept; data
// is the same as JSON.
func (j *Judge) Review(object map[string]any, data []byte) Verdict {
	name, _ := object["kind"].(string)
	k, ok := j.kinds[name]
	switch {
	case object["apiVersion"] == nil:
		return Verdict{Errors: field.ErrorList{field.Required(field.NewPath("apiVersion"), "write "+v1alpha1.GroupVersion.String())}}
	case object["apiVersion"] != v1alpha1.GroupVersion.String():
		return Verdict{Errors: field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), object["apiVersion"], []string{v1alpha1.GroupVersion.String()})}}
	case name == "":
		return Verdict{Errors: field.ErrorList{field.Required(field.NewPath("kind"), "write RoutingPlane or RoutingPolicy")}}
	case !ok:
		return Verdict{Errors: field.ErrorList{field.NotSupported(field.NewPath("kind"), name, []string{"RoutingPlane", "RoutingPolicy"})}}
	}
	v := Verdict{}
	if name == "RoutingPolicy" {
		v.Policy = &v1alpha1.RoutingPolicy{}
	} else {
		v.Plane = &v1alpha1.RoutingPlane{}
	}
	unknown, refused := metadata(object)
	v.Unknown = unknownFields(unknown)

	// What is plain in shape holds nothing that Go's rules would not see.
	if v.Policy != nil && refused == nil && plain(object, k.schema) && json.Unmarshal(data, v.Policy) == nil {
		v.Errors = append(v.Errors, validate.Policy(&v.Policy.Spec, field.NewPath("spec"))...)
		return v
	}

	object = runtime.DeepCopyJSON(object)
	v.Unknown = append(v.Unknown, unknownFields(pruning.PruneWithOptions(object, k.schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}))...)
	v.Errors = slices.Concat(refused, k.review(object))
	v.Errors = append(v.Errors, v.library(object, v.Errors, j.options)...)
	return v
}

// metadata judges what every object has: unknown fields of it, and what is wrong with the others.
func metadata(object map[string]any) (unknown []string, refused field.ErrorList) {
	at := field.NewPath("metadata")
	meta, _, unknown, err := objectmeta.GetObjectMetaWithOptions(object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, field.ErrorList{field.Invalid(at, field.OmitValueType{}, err.Error())}
	}
	if meta == nil {
		meta = &metav1.ObjectMeta{}
	}
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault // the client fills in its own
	}
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = names.SimpleNameGenerator.GenerateName(meta.GenerateName) // as the API server does before it looks
	}
	return unknown, validation.ValidateObjectMeta(meta, true, validation.NameIsDNSSubdomain, at)
}

// review does what the API server does with an object on its way in, and leaves it with its defaults.
func (k *kind) review(object map[string]any) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, k.schema)
	delete(object, "status") // the status is not set by those who create an object
	defaulting.Default(object, k.schema)

	errs := schemavalidation.ValidateCustomResource(nil, object, k.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.schema, object)...)
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return errs // the API server runs no rules then
		}
	}
	k.once.Do(func() { k.rules = cel.NewValidator(k.schema, true, celconfig.PerCallLimit) })
	found, _ := k.rules.Validate(context.Background(), nil, k.schema, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, found...)
}

// library reads the object and adds what internal/validate finds beside what the API server found. Values that the
// types cannot hold were refused already; they are taken out, so that the rest is looked at all the same.
func (v *Verdict) library(object map[string]any, server field.ErrorList, options validate.Options) (more field.ErrorList) {
	into := any(v.Policy)
	if v.Plane != nil {
		into = v.Plane
	}
	var removed []string
	if read(object, into) != nil {
		for _, err := range server {
			remove(object, err.Field)
			removed = append(removed, err.Field)
		}
		if err := read(object, into); err != nil {
			if len(server) > 0 {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())}
		}
	}
	var errs field.ErrorList
	if v.Policy != nil {
		errs = validate.Policy(&v.Policy.Spec, field.NewPath("spec"))
	} else {
		errs = validate.Plane(&v.Plane.Spec, field.NewPath("spec"), options)
	}
	for _, err := range errs {
		if !covered(err.Field, server, removed) {
			more = append(more, err)
		}
	}
	return more
}

func read(object map[string]any, into any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
