package sqstest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// recreation is how long AWS refuses a deleted queue's name, and a second purge.
const recreation = time.Minute

type createQueue struct {
	QueueName  string
	Attributes map[string]string
}

type queueURLAnswer struct {
	QueueURL string `json:"QueueUrl"`
}

func (in *createQueue) describe(r *Request) { r.Queue = in.QueueName }

func (in *createQueue) run(_ context.Context, s *Server, _ Fault) (any, error) {
	if err := checkNewQueue(in.QueueName, in.Attributes); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[in.QueueName]; q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		for name, value := range in.Attributes {
			if q.attrs[name] != value {
				return nil, refuse("QueueNameExists", "A queue already exists with the same name and a different value for attribute %s", name)
			}
		}
		return queueURLAnswer{s.queueURL(in.QueueName)}, nil
	}
	if at, ok := s.deleted[in.QueueName]; ok && s.Now().Sub(at) < recreation {
		return nil, refuse("QueueDeletedRecently", "You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	s.addQueue(in.QueueName, in.Attributes)
	return queueURLAnswer{s.queueURL(in.QueueName)}, nil
}

// checkNewQueue checks a name with the attributes that a queue is made with. The suffix
// of a FIFO queue counts towards the 80 characters.
func checkNewQueue(name string, attrs map[string]string) error {
	base, fifo := strings.CutSuffix(name, ".fifo")
	if !queueName.MatchString(base) || len(name) > 80 || fifo != (attrs["FifoQueue"] == "true") {
		return invalidParameter("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length; " +
			"the name of a FIFO queue, and of no other, ends in .fifo")
	}
	if err := checkSettable(attrs, fifo); err != nil {
		return err
	}
	all := defaultAttributes(fifo)
	maps.Copy(all, attrs)
	return checkTogether(all)
}

type getQueueURL struct{ QueueName string }

func (in *getQueueURL) describe(r *Request) { r.Queue = in.QueueName }

func (in *getQueueURL) run(_ context.Context, s *Server, _ Fault) (any, error) {
	if _, err := s.find(in.QueueName); err != nil {
		return nil, err
	}
	return queueURLAnswer{s.queueURL(in.QueueName)}, nil
}

type getQueueAttributes struct {
	queueRef
	AttributeNames []string
}

func (in *getQueueAttributes) run(_ context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	for _, name := range in.AttributeNames {
		if _, known := settable[name]; !known && name != "All" && !slices.Contains(readOnly, name) {
			return nil, refuse("InvalidAttributeName", "Unknown Attribute %s.", name)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.describe(s.Now())
	maps.DeleteFunc(all, func(name, _ string) bool { return !wanted(in.AttributeNames, name) })
	return struct {
		Attributes map[string]string `json:",omitempty"`
	}{all}, nil
}

type setQueueAttributes struct {
	queueRef
	Attributes map[string]string
}

func (in *setQueueAttributes) run(_ context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := checkSettable(in.Attributes, q.settings.fifo); err != nil {
		return nil, err
	}
	all := maps.Clone(q.attrs)
	maps.Copy(all, in.Attributes)
	if err := checkTogether(all); err != nil {
		return nil, err
	}
	q.attrs, q.settings, q.modified = all, parseSettings(all), s.Now()
	return empty{}, nil
}

type listQueues struct{ QueueNamePrefix string }

func (in *listQueues) describe(*Request) {}

func (in *listQueues) run(_ context.Context, s *Server, _ Fault) (any, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var urls []string
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if strings.HasPrefix(name, in.QueueNamePrefix) {
			urls = append(urls, s.queueURL(name))
		}
	}
	return struct {
		QueueUrls []string `json:",omitempty"`
	}{urls}, nil
}

type deleteQueue struct{ queueRef }

func (in *deleteQueue) run(_ context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, q.name)
	s.deleted[q.name] = s.Now()
	return empty{}, nil
}

type purgeQueue struct{ queueRef }

func (in *purgeQueue) run(_ context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.purged) < recreation {
		return nil, refuse("PurgeQueueInProgress", "Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = now
	q.purge()
	return empty{}, nil
}
