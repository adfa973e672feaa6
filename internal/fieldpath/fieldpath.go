// Package fieldpath takes the text of a field path, spec.models[3].seed, apart along what it leads through. Keys that
// hold dots or brackets themselves, as those of annotations do, are told by what keys there are.
package fieldpath

import (
	"iter"
	"strconv"
	"strings"
)

// Key splits the first step off a path that leads into an object with the keys: the longest that fits. ok is false
// where none does.
func Key(path string, keys iter.Seq[string]) (key, rest string, ok bool) {
	in, bracketed := strings.CutPrefix(path, "[")
	if !bracketed {
		in = strings.TrimPrefix(path, ".")
	}
	for candidate := range keys {
		after, fits := strings.CutPrefix(in, candidate)
		if bracketed && fits {
			after, fits = strings.CutPrefix(after, "]")
		}
		if fits && (after == "" || after[0] == '.' || after[0] == '[') && (!ok || len(candidate) > len(key)) {
			key, rest, ok = candidate, after, true
		}
	}
	return key, rest, ok
}

// Index splits the first step off a path that leads into a list. ok is false where it is no place in one.
func Index(path string) (index int, rest string, ok bool) {
	in, opened := strings.CutPrefix(path, "[")
	number, rest, closed := strings.Cut(in, "]")
	index, err := strconv.Atoi(number)
	if !opened || !closed || err != nil || index < 0 {
		return 0, "", false
	}
	return index, rest, true
}
