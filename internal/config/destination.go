package config

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Destination types.
const (
	TypeSQS    = "sqs"
	TypeSMTP   = "smtp"
	TypeStdout = "stdout"
)

// keysOfType are the keys of a destination that belong to one type alone.
var keysOfType = map[string][]string{
	TypeSQS:  {"queue", "region", "endpoint"},
	TypeSMTP: {"host", "port", "tls", "username", "password", "from"},
}

// Ordered says whether the destination keeps the order of what shares a key.
func (d Destination) Ordered() bool { return d.FIFO() || d.Type == TypeSMTP || d.Type == TypeStdout }

// FIFO says whether the destination is a FIFO queue; the queue's name says so.
func (d Destination) FIFO() bool {
	q, err := parseQueue(d.Queue)
	return err == nil && d.Type == TypeSQS && strings.HasSuffix(q.name, fifoSuffix)
}

// destinationName keeps names fit for metric labels and the command line.
var destinationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (v *validator) destinations() {
	for _, name := range slices.Sorted(maps.Keys(v.c.Destinations)) {
		key := join("destinations", name)
		if !destinationName.MatchString(name) {
			v.report(key, "needs a name of 1 to 63 letters, digits, dots, - and _ that begins with a letter or digit")
			continue
		}
		v.destination(key, v.c.Destinations[name])
	}
}

func (v *validator) destination(key string, d Destination) {
	v.foreign(key, d.Type)
	switch d.Type {
	case TypeSQS:
		v.queue(key, d)
	case TypeSMTP:
		v.mail(key, d)
	case TypeStdout:
	case "":
		v.report(key+".type", "is required: sqs, smtp or stdout")
	default:
		v.oneOf(key+".type", d.Type, TypeSQS, TypeSMTP, TypeStdout)
	}
	between(v, key+".concurrency", d.Concurrency, 1, 1000)
	between(v, key+".linger", d.Linger, 0, seconds(60))
	between(v, key+".timeout", d.Timeout, millis(100), seconds(600))
	v.backoff(key+".pause", d.Pause.Initial, d.Pause.Max, hours(1))
}

// foreign refuses keys that belong to destinations of other types.
func (v *validator) foreign(key, typ string) {
	if typ != TypeSQS && typ != TypeSMTP && typ != TypeStdout {
		return // nobody knows yet what it is
	}
	for _, owner := range slices.Sorted(maps.Keys(keysOfType)) {
		for _, name := range keysOfType[owner] {
			if at := key + "." + name; owner != typ && v.given(at) {
				v.report(at, "does not belong to a destination of type %s", typ)
			}
		}
	}
}

// queue checks what a queue says of itself against what is said beside it. The SDK
// would take one and ignore the other.
func (v *validator) queue(key string, d Destination) {
	if d.Queue == "" {
		v.report(key+".queue", "is required: the queue's name, ARN or URL")
		return
	}
	q, err := parseQueue(d.Queue)
	if err != nil {
		v.report(key+".queue", "%s", err)
		return
	}
	switch {
	case d.Region == "":
	case !regionName.MatchString(d.Region):
		v.report(key+".region", "must be a region's name, such as eu-west-1")
	case q.region != "" && d.Region != q.region:
		v.report(key+".region", "contradicts the queue, which names another; leave it out")
	}
	if d.Endpoint == "" {
		return
	}
	endpoint, err := parseEndpoint(d.Endpoint)
	if err != nil {
		v.report(key+".endpoint", "%s", err)
		return
	}
	// A queue's URL at AWS may be reached by another address of AWS, e.g. in a VPC.
	if q.url != nil && !(atAWS(q.url) && atAWS(endpoint)) && (q.url.Scheme != endpoint.Scheme || !strings.EqualFold(q.url.Host, endpoint.Host)) {
		v.report(key+".endpoint", "contradicts the queue, whose URL is elsewhere; leave it out, or give the queue's name")
	}
	if at, region := regionOf(endpoint), cmp.Or(q.region, d.Region); at != "" && region != "" && at != region {
		v.report(key+".endpoint", "is in another region than the queue")
	}
}
