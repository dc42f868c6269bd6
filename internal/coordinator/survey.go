package coordinator

import (
	"context"

	"ottla/internal/coordinator/group"
)

// A GroupStatus is what metrics tell of a group.
type GroupStatus = group.Status

// Survey tells of all groups that this broker coordinates, for metrics: nobody is asked for leave. It waits for the loops, until
// ctx ends; a partition that is still being loaded, or whose loop is late, is left out.
func (g *Groups) Survey(ctx context.Context) []GroupStatus {
	loops := g.all()
	parts := make(chan []GroupStatus, len(loops)) // each has room, so that no loop ever waits
	for _, l := range loops {
		l.submit(&call{survey: func(s []GroupStatus) { parts <- s }})
	}
	var all []GroupStatus
	for range loops {
		select {
		case part := <-parts:
			all = append(all, part...)
		case <-ctx.Done():
			return all
		}
	}
	return all
}
