// Package buildinfo says which build of the operator's programs this is.
package buildinfo

import "runtime/debug"

// Version is the module's version, or the commit where it was built from a checkout without a tag, and the release of
// Go that built it. It is "unknown" where the build kept neither.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && (version == "" || version == "(devel)") {
			version = setting.Value
		}
	}
	return version + " " + info.GoVersion
}
