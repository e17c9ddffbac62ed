package relay

import (
	"testing"

	"pgrelay/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
