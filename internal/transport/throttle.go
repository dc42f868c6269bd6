package transport

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A throttledResponse is an answer with a field throttle_time_ms. Most of kmsg's have it.
type throttledResponse interface {
	kmsg.ThrottleResponse
	kmsg.SetThrottleResponse
}

// throttle is Request.Throttle.
func (c *Conn) throttle(s *slot, d time.Duration) {
	until := time.Now().Add(d)
	s.throttle = max(s.throttle, d)
	if until.After(s.throttledUntil) {
		s.throttledUntil = until
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.mu.mutedUntil) {
		c.mu.mutedUntil = until
	}
}

// settleThrottle is called once, when the answer is known: it tells the client how long it is throttled, and settles whether
// the answer is held back as well.
func (s *slot) settleThrottle() {
	if s.throttle <= 0 || s.response == nil {
		return
	}
	if _, ok := s.response.(closeResponse); ok {
		return // no answer: who is sent away is not kept waiting for it
	}
	if r, ok := s.response.(kmsg.Response); ok {
		r.SetVersion(s.req.Header.Version) // Throttle asks for it
	}
	if r, ok := s.response.(throttledResponse); ok {
		r.SetThrottle(throttleMillis(s.throttle))
		if _, clientThrottles := r.Throttle(); clientThrottles {
			return
		}
	}
	s.heldUntil = s.throttledUntil
}

// throttleMillis is d as throttle_time_ms, rounded up: who waits for it is not early.
func throttleMillis(d time.Duration) int32 {
	return int32(min((d+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
}

// throttlePhase is the span that the throttle took of the request's life if the answer was held back, else the span for
// which reading stopped, which goes on after the answer.
func (s *slot) throttlePhase() (d time.Duration, held bool) {
	if s.heldUntil.IsZero() {
		return s.throttle, false
	}
	return max(0, s.heldUntil.Sub(s.known)), true
}
