// Pins Helm 3, with which the adoption of a running site is tested.
module github.com/routing-operator/routing-operator/test/assets/helm3

go 1.26.0

require helm.sh/helm/v3 v3.22.0
