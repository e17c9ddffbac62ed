package config

// env is a set of variables.
type env map[string]string

func (e env) lookUp(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}
