package broker

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
	"ottla/internal/wake"
)

// roomy is a memory limit that bounds no session.
const roomy = math.MaxInt64

// began is when the tests of sessions begin.
var began = time.Unix(1_700_000_000, 0)

// full is a first fetch of n partitions, by a follower if privileged.
func full(n int, privileged bool) *kmsg.FetchRequest {
	var wants []fetchWant
	for p := range int32(n) {
		wants = append(wants, from(uuid.Metadata, p, 0))
	}
	req := fetchRequest(0, initialEpoch, wants...)
	req.ReplicaState.ID = consumerID
	if privileged {
		req.ReplicaState.ID = 3
	}
	return req
}

func resolved(t *testing.T, c *sessionCache, req *kmsg.FetchRequest, now time.Time) *session {
	t.Helper()
	s, err := c.resolve(req, now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNextEpoch(t *testing.T) {
	for epoch, want := range map[int32]int32{0: 1, 1: 2, math.MaxInt32 - 1: math.MaxInt32, math.MaxInt32: 1} {
		if got := nextEpoch(epoch); got != want {
			t.Errorf("after epoch %d comes %d, want %d", epoch, got, want)
		}
	}
}

// Source of the codes: FetchSession.scala, FetchManager.newContext.
func TestSessionsAreResolved(t *testing.T) {
	c := newSessionCache(10, roomy)
	s := resolved(t, c, full(2, false), began)
	if !s.kept || s.id == 0 {
		t.Fatalf("a full fetch made no session: %+v", s)
	}
	byName := fetchRequest(s.id, 1)
	byName.SetVersion(12)
	for _, test := range []struct {
		name string
		req  *kmsg.FetchRequest
		want *kerr.Error
	}{
		{"unknown session", fetchRequest(s.id+1, 1), kerr.FetchSessionIDNotFound},
		{"epoch ahead", fetchRequest(s.id, 2), kerr.InvalidFetchSessionEpoch},
		{"by name", byName, kerr.FetchSessionTopicIDError},
	} {
		if _, err := c.resolve(test.req, began); err != error(test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want.Message)
		}
	}
	if again := resolved(t, c, fetchRequest(s.id, 1), began); again != s {
		t.Error("the next epoch does not go on with the session")
	}
	if _, err := c.resolve(fetchRequest(s.id, 1), began); err != error(kerr.InvalidFetchSessionEpoch) {
		t.Errorf("an epoch used twice: %v, want INVALID_FETCH_SESSION_EPOCH", err)
	}
	last := fetchRequest(s.id, finalEpoch, from(uuid.Metadata, 0, 0))
	if final := resolved(t, c, last, began); final.kept {
		t.Error("the final epoch made a session")
	}
	if _, err := c.resolve(fetchRequest(s.id, 2), began); err != error(kerr.FetchSessionIDNotFound) {
		t.Errorf("after the final epoch: %v, want FETCH_SESSION_ID_NOT_FOUND", err)
	}
	if old := full(1, false); true {
		old.SetVersion(6)
		if resolved(t, c, old, began).kept {
			t.Error("Fetch 6, which knows no sessions, made one")
		}
	}
	if resolved(t, c, full(0, false), began).kept {
		t.Error("a fetch of nothing made a session")
	}
}

// Who gets a slot when all are taken. Source: FetchSessionCache.tryEvict.
func TestSessionSlots(t *testing.T) {
	type request struct {
		after      time.Duration // since the sessions before were used
		partitions int
		privileged bool
	}
	for _, test := range []struct {
		name string
		old  []request // fill the slots
		next request
		want int // index of who has to go, -1 nobody does
	}{
		{"all in use, none smaller", []request{{partitions: 2}, {partitions: 3}}, request{partitions: 2}, -1},
		{"the smallest goes", []request{{partitions: 3}, {partitions: 2}}, request{partitions: 4}, 1},
		{"the longest unused goes first", []request{{partitions: 9}, {after: time.Second, partitions: 1}}, request{after: sessionEvictionAge + time.Second, partitions: 2}, 0},
		{"in use just now", []request{{partitions: 9}, {partitions: 9}}, request{after: sessionEvictionAge, partitions: 2}, -1},
		{"a follower takes a consumer's", []request{{partitions: 9, privileged: true}, {partitions: 9}}, request{partitions: 1, privileged: true}, 1},
		{"a consumer takes no follower's", []request{{partitions: 1, privileged: true}, {partitions: 9}}, request{partitions: 5}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, now := newSessionCache(len(test.old), roomy), began
			var sessions []*session
			for _, r := range test.old {
				now = now.Add(r.after)
				sessions = append(sessions, resolved(t, c, full(r.partitions, r.privileged), now))
			}
			now = now.Add(test.next.after)
			if got, want := resolved(t, c, full(test.next.partitions, test.next.privileged), now).kept, test.want >= 0; got != want {
				t.Errorf("the next has a slot: %v, want %v", got, want)
			}
			for i, s := range sessions {
				if got, want := c.mu.sessions[s.id] == nil, i == test.want; got != want {
					t.Errorf("session %d went: %v, want %v", i, got, want)
				}
				if c.mu.sessions[s.id] == nil && s.mu.parts != nil {
					t.Errorf("session %d went but is not closed", i)
				}
			}
		})
	}
}

// Sessions are bounded by memory, too, and those that grow beyond it begin anew without being remembered.
func TestSessionMemory(t *testing.T) {
	const room = 10
	c := newSessionCache(100, room*sessionsShare*partitionBytes)
	first := resolved(t, c, full(6, false), began)
	if !first.kept || resolved(t, c, full(5, false), began).kept {
		t.Error("want room for 6 partitions, and then not for 5 more")
	}
	small := resolved(t, c, full(4, false), began)
	if !small.kept {
		t.Error("want room for 4 more partitions")
	}
	grown := fetchRequest(small.id, 1, from(uuid.Metadata, 77, 0))
	if _, err := c.resolve(grown, began); err != error(kerr.FetchSessionIDNotFound) {
		t.Errorf("a session that grew beyond the bound: %v, want FETCH_SESSION_ID_NOT_FOUND", err)
	}
	forgetting := fetchRequest(first.id, 1)
	forgetting.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: uuid.Metadata, Partitions: []int32{0, 1, 2}}}
	resolved(t, c, forgetting, began)
	if c.mu.partitions != 3 || len(c.mu.sessions) != 1 {
		t.Errorf("%d partitions of %d sessions are counted, want 3 of 1", c.mu.partitions, len(c.mu.sessions))
	}
	c.remove(first.id)
	if c.mu.partitions != 0 {
		t.Errorf("%d partitions are counted of no session", c.mu.partitions)
	}
}

// Partitions are looked at in the order of their marks, each once, and who waits is woken.
func TestSessionMarks(t *testing.T) {
	c := newSessionCache(10, roomy)
	s := resolved(t, c, full(3, false), began)
	woken := 0
	w := &fetchWaiter{wake: func() wake.Work { woken++; return nil }}
	taken := func() string {
		out := ""
		for _, p := range s.take(nil, w) {
			out += fmt.Sprint(p.want.partition)
		}
		return out
	}
	part := func(p int32) *fetchPartition { return s.mu.parts[from(uuid.Metadata, p, 0).fetchKey] }
	var got []string
	got = append(got, taken()) // all, at first
	got = append(got, taken()) // nothing happened
	for _, p := range []int32{2, 0, 2} {
		s.mark(part(p))
	}
	got = append(got, taken())
	forgotten := part(1)
	s.mark(forgotten)
	req := fetchRequest(s.id, 1)
	req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: uuid.Metadata, Partitions: []int32{1}}}
	resolved(t, c, req, began)
	s.mark(forgotten)
	got = append(got, taken())
	if d := cmp.Diff([]string{"012", "", "20", ""}, got); d != "" {
		t.Errorf("partitions taken (-want +got):\n%s", d)
	}
	if woken != 5 {
		t.Errorf("woken %d times, want 5", woken)
	}
	other := &fetchWaiter{wake: func() wake.Work { t.Error("the wrong request was woken"); return nil }}
	s.take(nil, other)
	s.take(nil, w)
	s.idle(other) // it is not the one that waits
	s.mark(part(0))
	s.idle(w)
	s.mark(part(2))
	if woken != 6 {
		t.Errorf("woken %d times, want once more", woken)
	}
}
