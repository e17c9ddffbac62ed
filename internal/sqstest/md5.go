package sqstest

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
)

func md5OfBody(body string) string {
	sum := md5.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}

// md5OfAttributes hashes attributes as the SQS guide lays down: sorted by name; name,
// type and value each behind its length in four bytes; one byte for the kind of value
// (1 text, 2 binary). Empty without attributes: AWS then leaves the field out.
func md5OfAttributes(attributes map[string]attributeValue) string {
	if len(attributes) == 0 {
		return ""
	}
	var b []byte
	put := func(part []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		v := attributes[name]
		kind := byte(1)
		if v.binary() {
			kind = 2
		}
		put([]byte(name))
		put([]byte(v.DataType))
		b = append(b, kind)
		put(v.bytes())
	}
	sum := md5.Sum(b)
	return hex.EncodeToString(sum[:])
}
