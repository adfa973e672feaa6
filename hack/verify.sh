#!/usr/bin/env bash
# Checks that what can be derived is up to date: formatting, generated code, CRDs, module files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail=0
complain() { echo "verify: $1" >&2; fail=1; }

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[[ -z $unformatted ]] || complain "not formatted (make fmt): $unformatted"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
go tool -modfile=hack/tools/go.mod controller-gen object paths=./api/... crd \
  output:object:dir="$copy/api" output:crd:dir="$copy/crd"
diff -u api/v1alpha1/zz_generated.deepcopy.go "$copy/api/zz_generated.deepcopy.go" || complain "deep copies are stale (make generate)"
diff -ru config/crd/bases "$copy/crd" || complain "CRDs are stale (make generate)"

go mod tidy -diff || complain "go.mod is not tidy (go mod tidy)"

for overlay in config/default config/overlays/*/ config/samples; do
  go tool -modfile=hack/tools/go.mod kustomize build "$overlay" >/dev/null || complain "$overlay does not build"
done
exit "$fail"
