// Package controllers reconciles planes and policies. A plane's pass gathers what there is, has rollout.Make plan
// it, executes the steps and reports; a policy's pass judges the spec, keeps the last accepted one, and tells what
// the plane's last pass made of it. Everything that is decided is decided elsewhere, by pure functions.
package controllers
