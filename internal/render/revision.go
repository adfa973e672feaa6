package render

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The artefacts that a plane has revisions of.
const (
	ArtefactStargate = "stargate"
	ArtefactGateway  = "gateway"
)

// LBConfigKey is the key of a Stargate revision's data that holds the file.
const LBConfigKey = "lb-config.json"

// hashLength in characters of five bits: 80 bits, so that two contents of one plane never share a name.
const hashLength = 16

// RevisionName names the immutable ConfigMap that holds data for a plane: <plane>-<artefact>-<hash of data>.
// The hash is of the content alone, so that the same content has the same name again. The name is a DNS
// subdomain of at most 253 characters, which is all that a volume or a configMapKeyRef asks of it; a plane's name
// that would not fit is cut and gets a hash of its own. Two planes never share a name: a cut name is one
// character longer than any that is not cut.
func RevisionName(plane, artefact string, data map[string]string) string {
	suffix := "-" + artefact + "-" + contentHash(data)
	longest := validation.DNS1123SubdomainMaxLength - len(suffix)
	if len(plane) >= longest {
		plane = plane[:longest-hashLength] + shortHash([]byte(plane))
	}
	return plane + suffix
}

func contentHash(data map[string]string) string {
	var content []byte
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, s := range []string{key, data[key]} {
			// With its length before each, no two contents are one sequence of bytes.
			content = append(binary.AppendUvarint(content, uint64(len(s))), s...)
		}
	}
	return shortHash(content)
}

func shortHash(content []byte) string {
	sum := sha256.Sum256(content)
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:hashLength])
}
