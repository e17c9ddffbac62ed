package sqsfacts_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqsfacts"
	"pgrelay/internal/stranger"
)

// differs are the facts that fauxqs 1.9.2 doesn't know or knows otherwise, by what it does.
var differs = map[string][]string{
	"of attributes it looks at the size alone": {
		"*/*/11 attributes", "*/*/attribute name of 257", "*/*/attribute name with a space", "*/*/empty attribute name",
		"*/*/attribute name *.", "*/*/attribute name starting with a period", "*/*/attribute name ending with a period",
		"*/*/attribute name with two periods in a row", "*/*/empty String attribute", "*/*/empty Binary attribute",
		"*/*/attribute with a control character", "*/*/unknown type", "*/*/empty type", "*/*/type of 257",
		"*/*/Number that is none", "*/*/list values",
	},
	"it counts binary values in base64":                    {"size/binary counts as itself"},
	"it doesn't look at system attributes":                 {"*/*/another system attribute"},
	"it refuses what is beyond the first plane, emoji too": {"*/*/beyond the first plane", "size/emoji that fill it"},
	"it takes any group and deduplication id": {
		"*/*/group of 129", "*/*/group with a *", "*/*/group outside ASCII", "*/*/deduplication id of 129", "*/*/deduplication id with a space",
	},
	"it doesn't look at the ids of a standard queue, and forgets them": {
		"standard/*/empty group", "standard/*/deduplication id", "received/group on a standard queue",
	},
	"it deduplicates across groups whatever the scope": {"fifo/ids within a group"},
	"it takes any delay":                                  {"standard/*/delay of 901", "standard/*/negative delay"},
	"it fails the entry alone":                            {"whole batch/one FIFO entry without *"},
	"it takes entries without body":                       {"entry/without body"},
	"it takes entry ids of any length":                    {"whole batch/id of 81"},
	"it doesn't say how many entries there were":          {"whole batch/eleven entries, counted"},
	"it says InvalidParameterValue of a missing QueueUrl": {"need/empty queue URL"},
}

func TestAStrangerKnowsTheSameFacts(t *testing.T) {
	t.Parallel()
	url, bare := stranger.Start(t), &bareCodes{through: transport(t)}
	agrees := t.Run("facts", func(t *testing.T) {
		sqsfacts.Server{Client: client(url, bare), Prefix: "facts-"}.Run(t, differs)
	})
	if agrees {
		require.Positive(t, bare.mended.Load(), "fauxqs spells codes as AWS does; take bareCodes away")
	}
}

// bareCodes mends one difference that else would be in each refusal: fauxqs puts the
// prefix AWS.SimpleQueueService. before each code, AWS only before some.
type bareCodes struct {
	through http.RoundTripper
	mended  atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (b *bareCodes) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.through.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	const header = "X-Amzn-Query-Error"
	code := strings.TrimPrefix(answer.Header.Get(header), "AWS.SimpleQueueService.")
	switch name, _, _ := strings.Cut(code, ";"); name {
	case "InvalidParameterValue", "MissingParameter", "InvalidMessageContents":
		answer.Header.Set(header, code)
		b.mended.Add(1)
	}
	return answer, nil
}
