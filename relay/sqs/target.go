package sqs

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"pgrelay/internal/config"
)

// target is what a destination's queue, region and endpoint say together. The SDK
// ignores the host and the region of a queue URL, so they are worked out here.
type target struct {
	name     string // the queue's name
	account  string // the owner, where an ARN names it
	region   string // empty: the SDK's
	endpoint string // empty: AWS's for the region, or the SDK's environment
	url      string // empty: SQS is asked for it
}

var (
	queueName = regexp.MustCompile(`^([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)$`)
	queueARN  = regexp.MustCompile(`^arn:aws[a-z-]*:sqs:([a-z0-9-]+):([0-9]+):(.+)$`)
	awsRegion = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)
	awsHost   = regexp.MustCompile(`(^|\.)(amazonaws\.com(\.cn)?|amazonaws\.eu|api\.aws|api\.amazonwebservices\.com\.cn|c2s\.ic\.gov|sc2s\.sgov\.gov)$`)
	// plainHost is a host that the region alone leads to, today's and the one before.
	plainHost = regexp.MustCompile(`^(sqs\.[a-z0-9-]+\.amazonaws\.com(\.cn)?|([a-z0-9-]+\.)?queue\.amazonaws\.com(\.cn)?)$`)
)

// parseTarget reads the queue (name, ARN or URL) and refuses a region or an endpoint
// that contradicts it.
func parseTarget(d config.Destination) (target, error) {
	t, err := parseQueue(d.Queue)
	if err != nil {
		return target{}, fmt.Errorf("queue: %w", err)
	}
	if d.Region != "" && t.region != "" && d.Region != t.region {
		return target{}, fmt.Errorf("region: %s contradicts queue, which is in %s", d.Region, t.region)
	}
	if d.Region != "" {
		t.region = d.Region
	}
	if d.Endpoint == "" {
		return t, nil
	}
	return t.at(d.Endpoint)
}

// at adds the configured endpoint.
func (t target) at(endpoint string) (target, error) {
	e, err := parseHTTP(endpoint)
	if err != nil {
		return target{}, fmt.Errorf("endpoint: %w", err)
	}
	switch aws, region := awsAddress(e); {
	case t.endpoint != "" && t.endpoint != origin(e):
		return target{}, fmt.Errorf("endpoint: %s contradicts queue, whose URL is at %s", origin(e), t.endpoint)
	case t.url != "" && t.endpoint == "" && !aws:
		return target{}, fmt.Errorf("endpoint: %s contradicts queue, whose URL is at AWS; give the queue's name instead", origin(e))
	case region != "" && t.region != "" && region != t.region:
		return target{}, fmt.Errorf("endpoint: %s is in %s and the queue in %s", origin(e), region, t.region)
	case t.region == "":
		t.region = region
	}
	t.endpoint = strings.TrimSuffix(endpoint, "/")
	return t, nil
}

func parseQueue(queue string) (target, error) {
	var t target
	switch arn := queueARN.FindStringSubmatch(queue); {
	case queue == "":
		return t, errors.New("is missing; give the queue's name, ARN or URL")
	case arn != nil:
		t = target{region: arn[1], account: arn[2], name: arn[3]}
	case strings.HasPrefix(queue, "arn:"):
		return t, errors.New("is not the ARN of a queue: arn:aws:sqs:region:account:name")
	case strings.Contains(queue, "://"):
		u, err := parseHTTP(queue)
		if err != nil {
			return t, err
		}
		aws, region := awsAddress(u)
		t = target{region: region, url: queue, name: u.Path[strings.LastIndexByte(u.Path, '/')+1:]}
		if !aws || !plainHost.MatchString(u.Hostname()) {
			t.endpoint = origin(u)
		}
	default:
		t.name = queue
	}
	if !queueName.MatchString(t.name) {
		return t, fmt.Errorf("%q is not the name of a queue: 1 to 80 letters, digits, - and _, with .fifo at the end of a FIFO queue's", t.name)
	}
	return t, nil
}

// parseHTTP takes an http or https URL. Its errors do not repeat the URL, which
// might hold a password.
func parseHTTP(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("is not an http or https URL")
	case u.User != nil:
		return nil, errors.New("must not hold a user or a password")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must not have a query or a fragment")
	}
	return u, nil
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// awsAddress says whether a URL is AWS's own and which region its host names.
func awsAddress(u *url.URL) (bool, string) {
	host := u.Hostname()
	if !awsHost.MatchString(host) {
		return false, ""
	}
	for label := range strings.SplitSeq(host, ".") {
		if awsRegion.MatchString(label) {
			return true, label
		}
	}
	if host == "queue.amazonaws.com" { // the oldest form, from before there were regions
		return true, "us-east-1"
	}
	return true, ""
}
