// Command calendar shows a calendar back end on pgrelay: `make example-calendar` runs it, README.md explains it.
//
// producer.go is what the back end does, schema.sql its tables, pgrelay.yaml the configuration.
package main
