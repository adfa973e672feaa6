// Package analysis judges a wave of lastClusterAffinity flags by what Stargate's pods count in their metrics. It is pure:
// what was read and the time are passed in.
package analysis
