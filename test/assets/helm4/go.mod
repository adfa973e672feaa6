// Pins Helm 4, with which the adoption of a running site is tested.
module github.com/routing-operator/routing-operator/test/assets/helm4

go 1.26.0

require helm.sh/helm/v4 v4.3.1
