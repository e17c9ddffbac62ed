// Command booking shows a booking service on pgrelay: `make example-booking` runs it, README.md explains it.
//
// producer.go is what the service does, schema.sql its tables, pgrelay.yaml the configuration.
package main
