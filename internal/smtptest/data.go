package smtptest

import (
	"bufio"
	"bytes"
)

// readData reads a message to its end and takes the dots out that DATA put in. It is strict: only CR LF ends a line, so that what a
// lax server would take for the end shows.
func readData(r *bufio.Reader) ([]byte, error) {
	var data, line []byte
	for {
		b, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		line = append(line, b)
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			continue
		}
		if string(line) == ".\r\n" {
			return data, nil
		}
		data = append(data, bytes.TrimPrefix(line, []byte("."))...)
		line = line[:0]
	}
}
