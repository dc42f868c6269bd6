package broker

import (
	"sync"
	"sync/atomic"

	"ottla/internal/metadata"
)

// images publishes the metadata image that requests are answered from. The applier is its only writer; a reader loads
// one pointer.
type images struct {
	newest atomic.Pointer[metadata.Image]
	mu     struct {
		sync.Mutex
		changed chan struct{} // closed by the next publish
	}
}

func newImages() *images {
	i := &images{}
	i.newest.Store(metadata.Empty)
	i.mu.changed = make(chan struct{})
	return i
}

// current returns the newest image and a channel that is closed when a newer one is there.
func (i *images) current() (*metadata.Image, <-chan struct{}) {
	i.mu.Lock()
	changed := i.mu.changed
	i.mu.Unlock()
	return i.newest.Load(), changed // loaded after changed was taken: no publish is missed
}

func (i *images) publish(image *metadata.Image) {
	i.newest.Store(image)
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.mu.changed)
	i.mu.changed = make(chan struct{})
}
