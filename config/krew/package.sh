#!/usr/bin/env bash
# Builds the plugin's archives for every platform of routing.yaml, and the manifest that krew takes:
#   package.sh VERSION FOLDER [URL of the release's files]
set -euo pipefail

version=${1:?version, such as v0.1.0} folder=${2:?folder to write to}
url=${3:-https://github.com/routing-operator/routing-operator/releases/download/$version}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$folder"
manifest=$folder/routing.yaml
sed -e "s|@VERSION@|$version|" -e "s|@URL@|$url|" "$here/routing.yaml" >"$manifest"

for platform in $(sed -n 's/.*"@SHA256-\(.*\)@".*/\1/p' "$here/routing.yaml"); do
  os=${platform%-*} arch=${platform#*-}
  program=kubectl-routing
  [[ $os != windows ]] || program=kubectl-routing.exe
  stage=$(mktemp -d)
  (cd "$here/../.." && CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags '-s -w' -o "$stage/$program" ./cmd/kubectl-routing)
  cp "$here/../../LICENSE" "$stage"
  archive=$folder/kubectl-routing-$platform.tar.gz
  # The same input gives the same bytes.
  tar -C "$stage" --sort=name --mtime='2000-01-01 00:00Z' --owner=0 --group=0 --numeric-owner -c LICENSE "$program" | gzip -n >"$archive"
  rm -r "$stage"
  sed -i "s|@SHA256-$platform@|$(sha256sum "$archive" | cut -d' ' -f1)|" "$manifest"
done
