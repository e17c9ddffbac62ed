package sqstest_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
)

// The first sums are ones that AWS answered, as the tests of other projects keep them.
func TestMD5OfAttributesIsAmazons(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for want, given := range map[string]attributes{
		"235c5c510d26fb653d073faed50ae77c": {"timestamp": typed("Number", "1493147359900")},
		"36655e7e9d7c0e8479fa3f3f42247ae7": {"SOME_Valid.attribute-Name": typed("Number", "1493147359900")},
		"fca026605781cb4126a1e9044df24232": {"Hello": text("There"), "General": text("Kenobi")},
		// Worked out from the guide's description, without this package.
		"3a72d5edc37f474b6d8e67a4ad30008f": {"raw": {DataType: aws.String("Binary.png"), BinaryValue: []byte{0, 0xff}}},
	} {
		out, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: &b.standard, MessageBody: aws.String("x"), MessageAttributes: given,
		})
		require.NoError(t, err)
		require.Equal(t, want, *out.MD5OfMessageAttributes)
	}
}
