package sqsfacts

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// checksums are MD5 sums of attributes: recorded are ones that AWS answered, as the tests
// of other projects keep them, the last was worked out from the guide's description.
func checksums() []Fact {
	var facts []Fact
	for _, f := range []struct {
		name  string
		mark  Mark
		want  string
		given attributes
	}{
		{"Number", Recorded, "235c5c510d26fb653d073faed50ae77c", attributes{"timestamp": typed("Number", "1493147359900")}},
		{"name of all characters", Recorded, "36655e7e9d7c0e8479fa3f3f42247ae7", attributes{"SOME_Valid.attribute-Name": typed("Number", "1493147359900")}},
		{"two Strings", Recorded, "fca026605781cb4126a1e9044df24232", attributes{"Hello": text("There"), "General": text("Kenobi")}},
		{"labelled Binary", Documented, "3a72d5edc37f474b6d8e67a4ad30008f", attributes{
			"raw": types.MessageAttributeValue{DataType: aws.String("Binary.png"), BinaryValue: []byte{0, 0xff}},
		}},
	} {
		facts = append(facts, Fact{"checksum/" + f.name, f.mark, nil, func(ctx context.Context, q *Queue) error {
			out, err := q.Client.SendMessage(ctx, q.complete(sqs.SendMessageInput{MessageAttributes: f.given}))
			if err != nil {
				return err
			}
			if got := aws.ToString(out.MD5OfMessageAttributes); got != f.want {
				return fmt.Errorf("MD5OfMessageAttributes is %s instead of %s", got, f.want)
			}
			return nil
		}})
	}
	return facts
}
