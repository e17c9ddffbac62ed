package replication

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// decoder turns pgoutput messages of protocol version 1, in which only committed
// transactions arrive, one after the other, into what the stream acts on. It lives as
// long as one connection: relations are what this connection's newest Relation
// messages say. It never holds more than the message at hand.
type decoder struct {
	tables    map[relationName]*Table
	relations map[uint32]relation // only those of tables
	open      bool
	begin     pglogrepl.BeginMessage
}

type relationName struct{ schema, name string }

// relation is where a table's id is found in its tuples.
type relation struct {
	table *Table
	index int // of the id column; -1: the relation has none
}

type changeKind uint8

const (
	changeNone   changeKind = iota // nothing that concerns us
	changeBegin                    // decoder.begin has the transaction
	changeCommit                   // end
	changeRow                      // table, id
	changeNoID                     // table: a row in which there is no id
	changeAlien                    // a row of a relation that is none of ours
)

type change struct {
	kind  changeKind
	table *Table
	id    string
	end   pglogrepl.LSN
}

var (
	errShort    = errors.New("message ends too early")
	errSequence = errors.New("message out of sequence")
)

func newDecoder(tables []Table) *decoder {
	d := &decoder{tables: make(map[relationName]*Table, len(tables)), relations: map[uint32]relation{}}
	for i := range tables {
		t := &tables[i]
		d.tables[relationName{t.Schema, t.Name}] = t
	}
	return d
}

// decode reads one message. data is only read during the call: nothing that is
// returned or kept refers to it.
func (d *decoder) decode(data []byte) (c change, err error) {
	// pglogrepl indexes some messages without looking at their length.
	defer func() {
		if p := recover(); p != nil {
			c, err = change{}, fmt.Errorf("decoding message %q: %v: %w", data[0], p, errShort)
		}
	}()
	if len(data) == 0 {
		return change{}, errShort
	}
	kind, body := pglogrepl.MessageType(data[0]), data[1:]
	switch kind {
	case pglogrepl.MessageTypeBegin:
		err = d.decodeBegin(body)
		c.kind = changeBegin
	case pglogrepl.MessageTypeCommit:
		c, err = d.decodeCommit(body)
	case pglogrepl.MessageTypeRelation:
		err = d.decodeRelation(body)
	case pglogrepl.MessageTypeInsert:
		c, err = d.decodeInsert(body)
	default:
		// Updates, deletes, truncates, types, origins, logical messages and whatever a
		// later version brings: nothing in them is asked of us.
	}
	if err != nil {
		return change{}, fmt.Errorf("decoding message %q: %w", data[0], err)
	}
	return c, nil
}

func (d *decoder) decodeBegin(body []byte) error {
	if d.open {
		return errSequence
	}
	if err := d.begin.Decode(body); err != nil {
		return err
	}
	d.open = true
	return nil
}

func (d *decoder) decodeCommit(body []byte) (change, error) {
	if !d.open {
		return change{}, errSequence
	}
	var m pglogrepl.CommitMessage
	if err := m.Decode(body); err != nil {
		return change{}, err
	}
	d.open = false
	return change{kind: changeCommit, end: m.TransactionEndLSN}, nil
}

// decodeRelation keeps only the relations that are asked for: a partitioned table
// sends one for each leaf, and their number is not ours to bound.
func (d *decoder) decodeRelation(body []byte) error {
	var m pglogrepl.RelationMessage
	if err := m.Decode(body); err != nil {
		return err
	}
	t := d.tables[relationName{m.Namespace, m.RelationName}]
	if t == nil {
		delete(d.relations, m.RelationID)
		return nil
	}
	r := relation{table: t, index: -1}
	for i, c := range m.Columns {
		if c.Name == t.IDColumn {
			r.index = i
		}
	}
	d.relations[m.RelationID] = r
	return nil
}

func (d *decoder) decodeInsert(body []byte) (change, error) {
	if !d.open {
		return change{}, errSequence
	}
	if len(body) < 7 {
		return change{}, errShort
	}
	if body[4] != 'N' {
		return change{}, fmt.Errorf("tuple %q instead of a new one", body[4])
	}
	r, ours := d.relations[binary.BigEndian.Uint32(body)]
	if !ours {
		return change{kind: changeAlien}, nil
	}
	if r.index < 0 {
		return change{kind: changeNoID, table: r.table}, nil
	}
	id, ok, err := field(body[5:], r.index)
	if err != nil {
		return change{}, err
	}
	if !ok {
		return change{kind: changeNoID, table: r.table}, nil
	}
	return change{kind: changeRow, table: r.table, id: id}, nil
}

// field is the text of one column of a tuple, false if it has none. It walks the
// tuple itself because pglogrepl's parser copies every column byte by byte, and before
// PostgreSQL 15 those are whole rows; it also allocates by a length it has not checked.
func field(tuple []byte, index int) (string, bool, error) {
	if index >= int(binary.BigEndian.Uint16(tuple)) {
		return "", false, errShort
	}
	tuple = tuple[2:]
	for i := 0; ; i++ {
		if len(tuple) < 1 {
			return "", false, errShort
		}
		kind := tuple[0]
		tuple = tuple[1:]
		var value []byte
		switch kind {
		case pglogrepl.TupleDataTypeNull, pglogrepl.TupleDataTypeToast:
		case pglogrepl.TupleDataTypeText, pglogrepl.TupleDataTypeBinary:
			if len(tuple) < 4 {
				return "", false, errShort
			}
			n := int64(binary.BigEndian.Uint32(tuple))
			if n > int64(len(tuple)-4) {
				return "", false, errShort
			}
			value, tuple = tuple[4:4+n], tuple[4+n:]
		default:
			return "", false, fmt.Errorf("column of kind %q", kind)
		}
		if i == index {
			return string(value), kind == pglogrepl.TupleDataTypeText, nil
		}
	}
}
