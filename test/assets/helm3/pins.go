//go:build tools

// Package helm keeps the command that build.sh builds in go.mod.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
