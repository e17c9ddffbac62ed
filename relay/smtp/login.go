package smtp

import (
	"errors"

	"pgrelay/internal/config"
)

// login is the mechanism LOGIN as servers have it. It answers two questions in their order, because no
// two servers ask them in the same words; go-sasl's insists on some.
type login struct {
	username string
	password config.Secret
	asked    int
}

// Start implements sasl.Client.
func (l *login) Start() (mechanism string, response []byte, err error) { return "LOGIN", nil, nil }

// Next implements sasl.Client.
func (l *login) Next([]byte) ([]byte, error) {
	l.asked++
	switch l.asked {
	case 1:
		return []byte(l.username), nil
	case 2:
		return []byte(l.password), nil
	}
	return nil, errors.New("the server asks for more than username and password")
}
