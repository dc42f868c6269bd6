package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestListFilters: blanks around a state, and the case of letters, do not matter; a state or type that there is not lets nothing through.
func TestListFilters(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	commitByID(w, w.ofTopic["t"], 1)
	for _, c := range []struct {
		states, types []string
		want          int
	}{{nil, nil, 1}, {[]string{" eMPTY "}, nil, 1}, {[]string{"Gone", "Stable"}, nil, 0}, {nil, []string{"CLASSIC"}, 1}, {nil, []string{"other"}, 0}} {
		_, answers := w.do(&kmsg.ListGroupsRequest{Version: 5, StatesFilter: c.states, TypesFilter: c.types}, "c")
		if got := len(answers[0].Response.(*kmsg.ListGroupsResponse).Groups); got != c.want {
			t.Errorf("states %q, types %q: %d groups, want %d", c.states, c.types, got, c.want)
		}
	}
}
