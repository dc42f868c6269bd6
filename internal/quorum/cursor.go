package quorum

import "context"

// A Cursor reads committed events in order, at its reader's own pace: it holds no event back and
// costs nothing while nobody calls Next. One goroutine at a time may use it.
type Cursor struct{}

// Next returns the next event, waiting for it until ctx ends. It returns ErrClosed after the
// quorum was closed, and an error that says which file is damaged when the log cannot be read.
func (c *Cursor) Next(ctx context.Context) (Event, error) { return nil, ErrClosed }
