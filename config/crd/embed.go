// Package crd holds the operator's CustomResourceDefinitions, for programs that judge objects without an API server.
package crd

import "embed"

// Bases has the CustomResourceDefinitions as files of YAML in the folder bases.
//
//go:embed bases/*.yaml
var Bases embed.FS
