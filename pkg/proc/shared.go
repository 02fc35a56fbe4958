package proc

import "context"

// A shared is something of the node that is read at most once in a round, by whoever
// needs it first, for all others. The zero value is not ready for use.
type shared[T any] struct {
	turn  chan struct{} // holds one token; who has it may use the rest
	known bool
	value T
}

func newShared[T any]() *shared[T] {
	s := &shared[T]{turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// get returns what it is, and has it read if nobody has yet. Nobody waits for the one that
// reads beyond their own time. An error is not kept: whoever has more time begins again.
func (s *shared[T]) get(ctx context.Context, read func() (T, error)) (T, error) {
	var none T
	select {
	case <-s.turn:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	defer func() { s.turn <- struct{}{} }()
	if s.known {
		return s.value, nil
	}
	value, err := read()
	if err != nil {
		return none, err
	}
	s.known, s.value = true, value
	return value, nil
}
