// Package configdoc writes docs/configuration.md: types and defaults from package config,
// words from the comments of config.example.yaml. So nothing is written twice, and a test
// fails while the document is not what [Reference] gives. After a change:
//
//	go generate ./internal/configdoc
package configdoc

//go:generate go test . -run TestTheReferenceIsCurrent -update
