//go:build linux

package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A schedule sends requests over many connections, each when it is due, and reads the answers. A latency counts from when its request was due, so
// that a stall counts against all that it delays. One thread sends, however many connections there are, so that with thousands of them it is the
// broker that is measured.
type schedule struct {
	lanes    []*lane
	answered func(r request, took time.Duration) // told of each answer without an error, one at a time
	inFlight atomic.Int64

	mu     sync.Mutex
	late   *hdrhistogram.Histogram // how late requests were sent, µs
	errors int64                   // answers with one
	first  error                   // the first of these
}

// A lane is a connection whose requests the schedule sends, and whose answers a goroutine of its own reads.
type lane struct {
	*conn
	mu      sync.Mutex
	pending []request
}

// A request awaits its answer.
type request struct {
	kmsg.Request
	due time.Time
}

// A plan tells, at each call, of the next request: when it is due, counted from the start, on which lane, and how it is made once it is sent. They come
// in the order of when they are due.
type plan func() (due time.Duration, lane int, r func() kmsg.Request)

func newSchedule(conns []*conn, answered func(request, time.Duration)) *schedule {
	s := &schedule{answered: answered, late: newHistogram()}
	for _, c := range conns {
		s.lanes = append(s.lanes, &lane{conn: c})
	}
	return s
}

// maxDrain is how long answers are waited for when the time is over.
const maxDrain = time.Minute

// run sends what the plan says for a while, and returns when all is answered.
func (s *schedule) run(ctx context.Context, d time.Duration, next plan) error {
	if d <= 0 {
		return nil
	}
	running := newRun(ctx)
	stop := make(chan struct{})
	for _, l := range s.lanes {
		running.start(func(context.Context) error { return s.receive(l, stop) })
	}
	running.start(func(ctx context.Context) error {
		defer func() {
			close(stop)
			for _, l := range s.lanes {
				l.SetReadDeadline(time.Now()) // ends the readers
			}
		}()
		if err := s.sendAll(ctx, d, next); err != nil {
			return err
		}
		for deadline := time.Now().Add(maxDrain); s.inFlight.Load() > 0; {
			if time.Now().After(deadline) {
				return fmt.Errorf("%d requests were not answered in %v", s.inFlight.Load(), maxDrain)
			}
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if err := running.wait(); err != nil {
		return err
	}
	for _, l := range s.lanes {
		l.SetReadDeadline(time.Time{})
	}
	return nil
}

// sendAll sends what is due, when it is due.
func (s *schedule) sendAll(ctx context.Context, d time.Duration, next plan) error {
	// The thread sleeps, as timers of the runtime may be a millisecond late; another runs the rest.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	start := time.Now()
	for ctx.Err() == nil {
		due, lane, request := next()
		if due >= d {
			return nil
		}
		at := start.Add(due)
		sleepUntil(at)
		if err := s.send(s.lanes[lane], request(), at); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// sleepUntil sleeps until t, to some 50 µs.
func sleepUntil(t time.Time) {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // if a signal ends it, the loop sleeps on
	}
}

func (s *schedule) send(l *lane, r kmsg.Request, due time.Time) error {
	l.mu.Lock()
	l.pending = append(l.pending, request{r, due})
	l.mu.Unlock()
	s.inFlight.Add(1)
	late := time.Since(due)
	s.mu.Lock()
	observe(s.late, late)
	s.mu.Unlock()
	return l.send(r)
}

// receive reads a connection's answers until stop is closed.
func (s *schedule) receive(l *lane, stop <-chan struct{}) error {
	for {
		frame, err := l.frame()
		if err != nil {
			if left(stop) {
				return nil
			}
			return err
		}
		now := time.Now()
		l.mu.Lock()
		r := l.pending[0]
		l.pending = l.pending[1:]
		l.mu.Unlock()
		resp, err := decode(r.Request, frame)
		if err != nil {
			return err
		}
		s.mu.Lock()
		if code := codeOf(resp); code == 0 {
			s.answered(r, now.Sub(r.due))
		} else if s.errors++; s.first == nil {
			s.first = unexpected(r.Request, code)
		}
		s.mu.Unlock()
		s.inFlight.Add(-1)
	}
}

// codeOf returns the first error in an answer.
func codeOf(resp kmsg.Response) int16 {
	switch resp := resp.(type) {
	case *kmsg.HeartbeatResponse:
		return resp.ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return resp.ErrorCode
	case *kmsg.OffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return p.ErrorCode
				}
			}
		}
	case *kmsg.ProduceResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return p.ErrorCode
				}
			}
		}
	default:
		return kerr.UnknownServerError.Code
	}
	return 0
}
