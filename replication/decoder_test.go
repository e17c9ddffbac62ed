package replication

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
)

// Messages as pgoutput writes them.

func beginMessage(xid uint32, lsn uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, lsn)
	b = binary.BigEndian.AppendUint64(b, 0)
	return binary.BigEndian.AppendUint32(b, xid)
}

func commitMessage(end uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, end-1)
	b = binary.BigEndian.AppendUint64(b, end)
	return binary.BigEndian.AppendUint64(b, 0)
}

func relationMessage(oid uint32, schema, name string, columns ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, oid)
	b = append(b, schema+"\x00"+name+"\x00d"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(b, "\x01"+c+"\x00"+"\x00\x00\x00\x19\xff\xff\xff\xff"...)
	}
	return b
}

// insertMessage writes a tuple; "<null>" and "<toast>" are those.
func insertMessage(oid uint32, values ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'I'}, oid)
	b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(values)))
	for _, v := range values {
		switch v {
		case "<null>":
			b = append(b, 'n')
		case "<toast>":
			b = append(b, 'u')
		default:
			b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v))), v...)
		}
	}
	return b
}

var decoderTables = []Table{{Schema: "s", Name: "outbox", IDColumn: "id", Canonical: "s.outbox"}}

func decodeAll(t *testing.T, d *decoder, messages ...[]byte) (last change) {
	t.Helper()
	for _, m := range messages {
		var err error
		last, err = d.decode(m)
		require.NoError(t, err)
	}
	return last
}

func TestTheIDIsTakenByNameFromTheNewestRelation(t *testing.T) {
	t.Parallel()
	d := newDecoder(decoderTables)
	decodeAll(t, d, relationMessage(7, "s", "outbox", "a", "id"), beginMessage(42, 900))
	c := decodeAll(t, d, insertMessage(7, "x", "1"))
	require.Equal(t, change{kind: changeRow, table: &decoderTables[0], id: "1"}, c)
	require.EqualValues(t, 42, d.begin.Xid)
	require.EqualValues(t, 900, d.begin.FinalLSN)
	c = decodeAll(t, d, relationMessage(7, "s", "outbox", "id", "a"), insertMessage(7, "2", "<null>"))
	require.Equal(t, "2", c.id)
	c = decodeAll(t, d, relationMessage(7, "s", "outbox", "a", "b", "c", "id"), insertMessage(7, "<null>", "<toast>", strings.Repeat("x", 1000), "3"))
	require.Equal(t, "3", c.id)
	require.Equal(t, change{kind: changeCommit, end: 1000}, decodeAll(t, d, commitMessage(1000)))
}

func TestTheIDIsACopy(t *testing.T) {
	t.Parallel()
	d := newDecoder(decoderTables)
	buffer := insertMessage(7, "abc")
	c := decodeAll(t, d, relationMessage(7, "s", "outbox", "id"), beginMessage(1, 1), buffer)
	clear(buffer)
	require.Equal(t, "abc", c.id)
}

func TestRowsWithoutAnIDAndOfOtherRelationsAreTold(t *testing.T) {
	t.Parallel()
	d := newDecoder(decoderTables)
	decodeAll(t, d, beginMessage(1, 1), relationMessage(7, "s", "outbox", "key"), relationMessage(8, "other", "outbox", "id"))
	require.Equal(t, change{kind: changeNoID, table: &decoderTables[0]}, decodeAll(t, d, insertMessage(7, "1")))
	require.Equal(t, changeAlien, decodeAll(t, d, insertMessage(8, "1")).kind)
	require.Equal(t, changeAlien, decodeAll(t, d, insertMessage(9, "1")).kind, "never announced")
	require.Len(t, d.relations, 1, "relations of others take no memory")
	c := decodeAll(t, d, relationMessage(7, "s", "outbox", "id"), insertMessage(7, "<null>"))
	require.Equal(t, changeNoID, c.kind)
	c = decodeAll(t, d, relationMessage(7, "s", "renamed", "id"), insertMessage(7, "1"))
	require.Equal(t, changeAlien, c.kind, "an oid may change its name, or come back for another table")
}

func TestUnneededMessagesAreSkipped(t *testing.T) {
	t.Parallel()
	d := newDecoder(decoderTables)
	for _, kind := range "UDTYOMSEcAbPKrp?\x00" {
		require.Equal(t, change{}, decodeAll(t, d, []byte{byte(kind)}), "%q", kind)
	}
}

func TestBrokenMessagesAreErrors(t *testing.T) {
	t.Parallel()
	row := insertMessage(7, "x", "1")
	hugeLength := append([]byte(nil), row...)
	binary.BigEndian.PutUint32(hugeLength[9:], 1<<32-1)
	for name, m := range map[string][]byte{
		"empty":                  {},
		"begin in a transaction": beginMessage(2, 2),
		"short commit":           commitMessage(5)[:10],
		"short relation":         relationMessage(7, "s", "outbox", "id")[:18],
		"short tuple":            row[:len(row)-1],
		"tuple without values":   row[:8],
		"tuple without count":    row[:6],
		"length beyond the end":  hugeLength,
		"too few columns":        insertMessage(7, "x"),
		"unknown kind of column": append(row[:8:8], 'q', 't'),
		"old tuple":              append([]byte{'I', 0, 0, 0, 7, 'O'}, row[6:]...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDecoder(decoderTables)
			decodeAll(t, d, relationMessage(7, "s", "outbox", "a", "id"), beginMessage(1, 1))
			_, err := d.decode(m)
			require.Error(t, err)
		})
	}
	for name, m := range map[string][]byte{"commit": commitMessage(5), "insert": row} {
		t.Run(name+" without a transaction", func(t *testing.T) {
			t.Parallel()
			_, err := newDecoder(decoderTables).decode(m)
			require.ErrorIs(t, err, errSequence)
		})
	}
}

// FuzzDecode: no message makes the decoder panic, and what it takes for an id is what
// pglogrepl's own parser finds in that column.
func FuzzDecode(f *testing.F) {
	for _, m := range [][]byte{
		beginMessage(1, 2), commitMessage(3), relationMessage(7, "s", "outbox", "id"), insertMessage(7, "x", "1"),
		insertMessage(7, "<null>", "<toast>"), {'T'}, {'M', 1}, {},
	} {
		f.Add(m, true)
		f.Add(m, false)
	}
	f.Fuzz(func(t *testing.T, m []byte, open bool) {
		d := newDecoder(decoderTables)
		decodeAll(t, d, relationMessage(7, "s", "outbox", "a", "id"))
		if open {
			decodeAll(t, d, beginMessage(1, 1))
		}
		c, err := d.decode(m)
		if err != nil || c.kind != changeRow {
			return
		}
		parsed, err := pglogrepl.Parse(m)
		require.NoError(t, err)
		insert, ok := parsed.(*pglogrepl.InsertMessage)
		require.True(t, ok)
		require.Equal(t, string(insert.Tuple.Columns[1].Data), c.id)
	})
}
