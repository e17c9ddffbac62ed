package config

import (
	"errors"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// queue is what a queue's name, ARN or URL says of it; the rest is empty.
type queue struct {
	name   string
	region string
	url    *url.URL
}

const fifoSuffix = ".fifo"

var (
	queueName  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	accountID  = regexp.MustCompile(`^[0-9]{12}$`)
	regionName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`) // local servers make up their own
	awsRegion  = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)
	awsHost    = regexp.MustCompile(`(^|\.)(amazonaws\.(com|com\.cn|eu)|api\.aws|api\.amazonwebservices\.com\.cn|(c2s\.ic|sc2s\.sgov)\.gov)$`)
)

func parseQueue(text string) (queue, error) {
	q := queue{name: text}
	switch {
	case strings.HasPrefix(text, "arn:"):
		parts := strings.Split(text, ":")
		if len(parts) != 6 || parts[2] != "sqs" || !regionName.MatchString(parts[3]) || !accountID.MatchString(parts[4]) {
			return queue{}, errors.New("must be a queue's ARN of the form arn:aws:sqs:region:account:name")
		}
		q.name, q.region = parts[5], parts[3]
	case strings.Contains(text, "://"):
		u, err := parseEndpoint(text)
		if err != nil {
			return queue{}, err
		}
		q = queue{name: path.Base(u.Path), region: regionOf(u), url: u}
	}
	// The suffix counts as five of the eighty.
	if len(q.name) > 80 || !queueName.MatchString(strings.TrimSuffix(q.name, fifoSuffix)) {
		return queue{}, errors.New("must be a queue's name (1 to 80 letters, digits, - and _, with .fifo at the end of a FIFO queue's), ARN or URL")
	}
	return q, nil
}

// parseEndpoint reads a URL that requests go to.
func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("must be an http:// or https:// URL without user, query and fragment")
	}
	return u, nil
}

func atAWS(u *url.URL) bool { return awsHost.MatchString(strings.ToLower(u.Hostname())) }

// regionOf is the region that an AWS host names; empty for any other.
func regionOf(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	switch {
	case !atAWS(u):
		return ""
	case host == "queue.amazonaws.com": // the oldest form, from before there were regions
		return "us-east-1"
	}
	for label := range strings.SplitSeq(host, ".") {
		if awsRegion.MatchString(label) {
			return label
		}
	}
	return ""
}
