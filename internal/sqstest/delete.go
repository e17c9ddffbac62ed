package sqstest

import "context"

type handleEntry struct {
	ID            string `json:"Id"`
	ReceiptHandle string
}

type deleteMessage struct {
	queueRef
	ReceiptHandle string
}

func (in *deleteMessage) run(_ context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if e := s.deleteHandle(q, in.ReceiptHandle); e != nil {
		return nil, e
	}
	return empty{}, nil
}

// deleteHandle deletes what a handle names. Handles of an earlier receive and of a
// deleted message succeed and do nothing.
func (s *Server) deleteHandle(q *queue, handle string) *apiError {
	id, receive, ok := parseHandle(handle)
	if !ok {
		return refuse("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.live[id]
	if m == nil || m.receives != receive {
		return nil
	}
	if q.settings.fifo && !m.visibleAt.After(s.Now()) {
		return invalidParameter("Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", handle)
	}
	q.remove(m)
	return nil
}

type deleteMessageBatch struct {
	queueRef
	Entries []handleEntry
}

type deletedEntry struct {
	ID string `json:"Id"`
}

func (in *deleteMessageBatch) run(_ context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(in.Entries))
	for i, e := range in.Entries {
		ids[i] = e.ID
	}
	if err := checkEntries("DeleteMessageBatch", ids); err != nil {
		return nil, err
	}
	var answer batchAnswer[deletedEntry]
	for _, entry := range in.Entries {
		if e := s.deleteHandle(q, entry.ReceiptHandle); e != nil {
			answer.Failed = append(answer.Failed, failedEntry{entry.ID, e.code, e.message, true})
			continue
		}
		answer.Successful = append(answer.Successful, deletedEntry{entry.ID})
	}
	return answer, nil
}

type changeMessageVisibility struct {
	queueRef
	ReceiptHandle     string
	VisibilityTimeout int
}

func (in *changeMessageVisibility) run(_ context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if in.VisibilityTimeout < 0 || in.VisibilityTimeout > maxVisibility {
		return nil, invalidParameter("Value %d for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and %d.", in.VisibilityTimeout, maxVisibility)
	}
	id, receive, ok := parseHandle(in.ReceiptHandle)
	if !ok {
		return nil, refuse("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
	}
	now := s.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.live[id]
	if m == nil || m.receives != receive || !m.visibleAt.After(now) {
		return nil, refuse("MessageNotInflight", "The specified message isn't in flight.")
	}
	m.visibleAt = now.Add(seconds(&in.VisibilityTimeout, 0))
	q.moved(m.lane)
	q.changed.fire()
	return empty{}, nil
}
