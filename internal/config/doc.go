// Package config reads pgrelay.yaml.
//
// It promises that what it returns was meant: unknown, duplicate, empty and mistyped
// keys, numbers out of range, names that refer to nothing and settings that contradict
// each other are all refused, all of them at once, each with file, line and key and
// where possible with the word that was probably meant. What a key says is either in
// force or an error; there is no key that does nothing. A key that is left out has
// its default, so a zero value in Config means what the file says.
//
// Variables are expanded inside values after the YAML was parsed, so nothing in a
// variable can break the file, and what is in it arrives byte for byte.
//
// How it fails: Load and Parse return Problems and nothing else. No problem holds a
// value of the file or of a variable, so all of them may be printed and logged.
package config
