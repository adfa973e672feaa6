#!/usr/bin/env bash
# Builds the programs that the tests and the demo run against, from the Go modules pinned beside this
# file, and prints the folder that holds them. What is there already is not built again.
#
#   test/assets/build.sh [etcd|kube-apiserver|kube-controller-manager|kubectl|helm3|helm4 ...]
#
# Without arguments: the first four. With KUBEBUILDER_ASSETS set, programs found there are used as they
# are, by a link; only what is missing there is built. ASSETS_DIR overrides the folder.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pinned() { (cd "$here/$1" && go list -m -f '{{.Version}}' "$2"); }

kubernetes=$(pinned kubernetes k8s.io/kubernetes)
etcd=$(pinned kubernetes go.etcd.io/etcd/server/v3)
platform=$(go env GOOS)-$(go env GOARCH)
dir=${ASSETS_DIR:-$here/../../bin/assets}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)/kubernetes-$kubernetes-etcd-$etcd-$platform
[[ -z ${KUBEBUILDER_ASSETS:-} ]] || dir=$dir-$(printf %s "$KUBEBUILDER_ASSETS" | cksum | cut -d' ' -f1)
mkdir -p "$dir"

# build NAME MODULE-FOLDER PACKAGE [LINKER-FLAGS]
build() {
  [[ -x $dir/$1 ]] && return
  if [[ -x ${KUBEBUILDER_ASSETS:-}/$1 ]]; then
    ln -sf "$KUBEBUILDER_ASSETS/$1" "$dir/$1"
    return
  fi
  echo "building $1 from $3 (minutes, the first time)" >&2
  (cd "$here/$2" && CGO_ENABLED=0 go build -trimpath -mod=readonly -ldflags "-s -w ${4:-}" -o "$dir/.$1.$$" "$3")
  mv "$dir/.$1.$$" "$dir/$1"
}

version=k8s.io/component-base/version
stamp="-X $version.gitVersion=$kubernetes -X $version.gitCommit=unknown -X $version.gitTreeState=clean"
[[ $# -gt 0 ]] || set -- etcd kube-apiserver kube-controller-manager kubectl
for name in "$@"; do
  case $name in
    etcd) build etcd kubernetes go.etcd.io/etcd/server/v3 ;;
    kube-apiserver | kube-controller-manager | kubectl) build "$name" kubernetes "k8s.io/kubernetes/cmd/$name" "$stamp" ;;
    helm3) build helm3 helm3 helm.sh/helm/v3/cmd/helm ;;
    helm4) build helm4 helm4 helm.sh/helm/v4/cmd/helm ;;
    *) echo "build.sh: unknown program $name" >&2; exit 2 ;;
  esac
done
echo "$dir"
