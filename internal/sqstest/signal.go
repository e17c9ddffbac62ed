package sqstest

// signal wakes everyone who waits for a change. Its owner's mutex guards it; firing
// costs nothing while nobody waits.
type signal struct{ ch chan struct{} }

// next is closed at the next fire.
func (s *signal) next() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
