package main

import (
	"testing"

	"pgrelay/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }
