// Package manifests reads Kubernetes objects out of files as kubectl reads them, keeps those of the operator's API
// group, and knows the line of every field.
package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/text/encoding/unicode"
	"k8s.io/apimachinery/pkg/util/sets"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Set is what was read.
type Set struct {
	// Documents are the objects of the operator's group, in the order of files and of their text. The items of lists
	// are objects of their own.
	Documents []*Document
	// Broken are the texts that are no objects though they speak of the operator's group.
	Broken []Broken
	// Doubtful are objects of groups that look like the operator's own, misspelt.
	Doubtful []Broken
	// Files and Skipped count the files read and the documents of others in them.
	Files, Skipped int
}

// Broken is a text that cannot be read.
type Broken struct {
	File string
	// Line in the file, from 1.
	Line int
	// Message says why.
	Message string
}

// Stdin is the name that stands for the standard input.
const Stdin = "-"

// Read reads files, folders with everything below them, and the standard input. In folders it takes files whose names
// end in .yaml, .yml or .json. An error is one of reading; what is wrong with the content is in the set.
func Read(names []string, stdin io.Reader) (Set, error) {
	var set Set
	var chunks []chunk
	seen := sets.New[string]()
	for _, name := range names {
		files, err := find(name)
		if err != nil {
			return Set{}, err
		}
		for _, file := range files {
			if seen.Has(filepath.Clean(file)) {
				continue // a folder, and a file of it
			}
			seen.Insert(filepath.Clean(file))
			data, err := readFile(file, stdin)
			if err != nil {
				return Set{}, fmt.Errorf("reading: %w", err)
			}
			set.Files++
			if file == Stdin {
				file = "<stdin>"
			}
			chunks = append(chunks, split(file, data)...)
		}
	}
	// Documents are parsed side by side: that is where the time goes.
	parsed := make([]Set, len(chunks))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range chunks {
		group.Go(func() error {
			parsed[i] = chunks[i].parse()
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	for i := range parsed {
		set.add(parsed[i])
	}
	return set, nil
}

var extensions = []string{".yaml", ".yml", ".json"}

func find(name string) ([]string, error) {
	if name == Stdin {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains(extensions, strings.ToLower(filepath.Ext(path))):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading folder %s: %w", name, err)
	}
	return files, nil
}

// readFile reads a file as UTF-8. One in UTF-16, as the shell of Windows writes it, is read by its byte order mark, as
// kubectl reads it.
func readFile(name string, stdin io.Reader) (data []byte, err error) {
	if name == Stdin {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil || !slices.ContainsFunc(utf16, func(mark []byte) bool { return bytes.HasPrefix(data, mark) }) {
		return data, err
	}
	return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Bytes(data)
}

// utf16 are the byte order marks of both orders.
var utf16 = [][]byte{{0xff, 0xfe}, {0xfe, 0xff}}

// chunk is one document of a file.
type chunk struct {
	file string
	line int // of the first byte
	text []byte
	// separator is what follows the --- before the document, where that is no comment.
	separator string
}

// split cuts a file at the lines that begin with ---, which is where kubectl cuts it.
func split(file string, data []byte) []chunk {
	var chunks []chunk
	current := chunk{file: file, line: 1}
	start, line := 0, 1
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if rest, ok := bytes.CutPrefix(data[at:end], []byte("---")); ok {
			current.text = data[start:at]
			chunks = append(chunks, current)
			current = chunk{file: file, line: line + 1}
			start = end
			if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '#' {
				current.separator = string(rest)
			}
		}
		at = end
		line++
	}
	current.text = data[start:]
	return append(chunks, current)
}

// parse reads a chunk. One that mentions neither the operator's group nor a kind of it is not looked into: it may be no
// YAML at all, like a chart's templates.
func (c chunk) parse() Set {
	group := bytes.Contains(c.text, []byte(v1alpha1.GroupVersion.Group))
	switch {
	case len(bytes.TrimSpace(c.text)) == 0:
		return Set{}
	case !group && !bytes.Contains(c.text, []byte(kindPlane)) && !bytes.Contains(c.text, []byte(kindPolicy)):
		return Set{Skipped: 1}
	}
	if c.separator != "" {
		return Set{Broken: []Broken{{c.file, c.line - 1, fmt.Sprintf("kubectl takes nothing but a comment behind ---, and here is %q; put it on a line of its own", c.separator)}}}
	}
	if trimmed := bytes.TrimLeft(c.text, " \t\r\n\ufeff"); len(trimmed) > 0 && trimmed[0] == '{' {
		if set, ok := c.parseJSON(); ok {
			return set
		}
	}
	text := &text{data: c.text, line: c.line}
	data, err := yaml.YAMLToJSONStrict(c.text)
	if err != nil {
		switch data, err = yaml.YAMLToJSON(c.text); {
		case err != nil && !group:
			return Set{Skipped: 1} // a template of another kind, perhaps
		case err != nil:
			return Set{Broken: []Broken{c.broken(err)}}
		}
		text.duplicates = true
	}
	return c.objects(text, data)
}

// parseJSON reads one JSON object after the other. Text that only looks like JSON is left to the reader of YAML.
func (c chunk) parseJSON() (Set, bool) {
	var set Set
	decoder := json.NewDecoder(bytes.NewReader(c.text))
	for {
		start := decoder.InputOffset()
		var object json.RawMessage
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return set, true
		case err != nil:
			return Set{}, false
		}
		line := c.line + bytes.Count(c.text[:start], []byte("\n"))
		set.add(c.objects(&text{data: c.text[start:decoder.InputOffset()], line: line}, object))
	}
}

// objects makes documents of one JSON value: of itself, or of the items of a list.
func (c chunk) objects(text *text, data []byte) Set {
	var object map[string]any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(data, &object); err != nil {
		return Set{Broken: []Broken{{c.file, text.line, "the document is no object"}}}
	}
	kind, _ := object["kind"].(string)
	items, isList := object["items"].([]any)
	if !isList || !strings.HasSuffix(kind, "List") {
		return one(&Document{File: c.file, Object: object, JSON: data, text: text})
	}
	var set Set
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			continue
		}
		data, err := json.Marshal(object)
		if err != nil {
			set.Broken = append(set.Broken, Broken{c.file, text.line, err.Error()})
			continue
		}
		set.add(one(&Document{File: c.file, Object: object, JSON: data, text: text, item: fmt.Sprintf("items[%d]", i)}))
	}
	return set
}

// one sorts an object by whose it is.
func one(document *Document) Set {
	ours, doubtful := whose(document.Object)
	switch {
	case ours:
		return Set{Documents: []*Document{document}}
	case doubtful:
		return Set{Skipped: 1, Doubtful: []Broken{{document.File, document.Position("apiVersion").Line, fmt.Sprintf(
			"the %v is of apiVersion %v, and the operator's is %s: it is passed over, correct the group if it is misspelt", document.Object["kind"], document.Object["apiVersion"], v1alpha1.GroupVersion)}}}
	}
	return Set{Skipped: 1}
}

// add puts what was read of a text behind what was read before.
func (s *Set) add(more Set) {
	s.Documents = append(s.Documents, more.Documents...)
	s.Broken = append(s.Broken, more.Broken...)
	s.Doubtful = append(s.Doubtful, more.Doubtful...)
	s.Skipped += more.Skipped
}

// The kinds of the operator's group.
const (
	kindPlane  = "RoutingPlane"
	kindPolicy = "RoutingPolicy"
)

// whose tells whether an object is one of the operator's, as is one of its kinds without any group. An object of the
// same kind is doubtful where half of its group is the operator's: the other half may be misspelt. Further from that,
// it is somebody else's RoutingPolicy.
func whose(object map[string]any) (ours, doubtful bool) {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	group, _, found := strings.Cut(version, "/")
	named := kind == kindPlane || kind == kindPolicy
	ours = found && group == v1alpha1.GroupVersion.Group || !found && named
	first, rest, _ := strings.Cut(group, ".")
	ownFirst, ownRest, _ := strings.Cut(v1alpha1.GroupVersion.Group, ".")
	return ours, named && !ours && (first == ownFirst || rest == ownRest)
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// broken places an error of the YAML parser in the file.
func (c chunk) broken(err error) Broken {
	message, line := err.Error(), c.line
	if match := yamlLine.FindStringSubmatchIndex(message); match != nil {
		if n, err := strconv.Atoi(message[match[2]:match[3]]); err == nil {
			line += n - 1
		}
		message = message[match[1]:]
	}
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	if bytes.Contains(c.lineOf(line), []byte("\t")) {
		message += "; the line has a tab, and YAML wants blanks"
	}
	if bytes.Contains(c.text, []byte("{{")) {
		message += "; if this is a template, check what it renders to"
	}
	return Broken{c.file, line, "no YAML: " + message}
}

// lineOf is a line of the file that the chunk has.
func (c chunk) lineOf(line int) []byte {
	lines := bytes.Split(c.text, []byte("\n"))
	if at := line - c.line; at >= 0 && at < len(lines) {
		return lines[at]
	}
	return nil
}
