package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// observed collects what a server says of its requests.
type observed struct{ phases chan Phases }

func (o observed) Answered(_ *Conn, _ *protocol.RequestHeader, p Phases, _ int16) { o.phases <- p }

// A throttledFile is a FrameWriter with throttle_time_ms, of either kind of version.
type throttledFile struct {
	fileAnswer
	millis          int32
	clientThrottles bool
}

func (a *throttledFile) SetThrottle(millis int32) { a.millis = millis }
func (a *throttledFile) Throttle() (int32, bool)  { return a.millis, a.clientThrottles }

// TestThrottle: reading stops in any case; the answer is held back where the client does not hold itself back.
func TestThrottle(t *testing.T) {
	const delay = 3*time.Second + 500*time.Microsecond // announced as 3001 ms
	produce, produceBefore := produceRequest(1, -1), request(versioned(kmsg.NewPtrProduceRequest(), 5), 1)
	at := func(version int16, r interface {
		kmsg.Request
		SetVersion(int16)
	}) []byte {
		r.SetVersion(version)
		return request(r, 1)
	}
	for name, c := range map[string]struct {
		request    []byte
		millisAt   int           // place of throttle_time_ms behind the correlation id; -1: the answer has none
		remote     time.Duration // until the answer is known; 0: when Handle returns
		inPoll     bool          // Throttle is called when the answer is known
		wantAnswer time.Duration // since the request
		wantNext   time.Duration // until the next request is handled
		wantPhases Phases
	}{
		"client throttles": {
			request: at(6, kmsg.NewPtrMetadataRequest()), millisAt: 0,
			wantNext: delay, wantPhases: Phases{Throttle: delay},
		},
		"client of before": {
			request: at(5, kmsg.NewPtrMetadataRequest()), millisAt: 0,
			wantAnswer: delay, wantNext: delay, wantPhases: Phases{Throttle: delay, Total: delay},
		},
		"version without the field": {
			request: at(1, kmsg.NewPtrListOffsetsRequest()), millisAt: -1,
			wantAnswer: delay, wantNext: delay, wantPhases: Phases{Throttle: delay, Total: delay},
		},
		"client throttles, answer waits": {
			request: produce, millisAt: 2, remote: time.Second, // behind the header's tags and no topics
			wantAnswer: time.Second, wantNext: delay, wantPhases: Phases{Remote: time.Second, Throttle: delay, Total: time.Second},
		},
		"client of before, answer waits": {
			request: produceBefore, millisAt: 4, remote: time.Second,
			wantAnswer: delay, wantNext: delay, wantPhases: Phases{Remote: time.Second, Throttle: delay - time.Second, Total: delay},
		},
		"client of before, answer waits for longer": {
			request: produceBefore, millisAt: 4, remote: 5 * time.Second,
			wantAnswer: 5 * time.Second, wantNext: 5 * time.Second, // not pipelined: behind the answer
			wantPhases: Phases{Remote: 5 * time.Second, Total: 5 * time.Second},
		},
		"client throttles, found when answering": {
			request: produce, millisAt: 2, remote: time.Second, inPoll: true,
			wantAnswer: time.Second, wantNext: time.Second + delay,
			wantPhases: Phases{Remote: time.Second, Throttle: delay, Total: time.Second},
		},
		"client of before, found when answering": {
			request: produceBefore, millisAt: 4, remote: time.Second, inPoll: true,
			wantAnswer: time.Second + delay, wantNext: time.Second + delay,
			wantPhases: Phases{Remote: time.Second, Throttle: delay, Total: time.Second + delay},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				phases := make(chan Phases, 2)
				f := start(t, func(_ context.Context, r *Request) (Response, Pending) {
					if r.Header.CorrelationID != 1 {
						return r.Body.ResponseKind(), nil
					}
					if !c.inPoll {
						r.Throttle(time.Second) // the longest counts
						r.Throttle(delay)
						r.Throttle(time.Millisecond)
					}
					if c.remote == 0 {
						return r.Body.ResponseKind(), nil
					}
					return nil, &timed{r, time.Now().Add(c.remote), func() {
						if c.inPoll {
							r.Throttle(delay)
						}
					}}
				}, func(o *Options) { o.Observer = observed{phases} })
				conn := f.dial()
				begin := time.Now()
				send(t, conn, c.request, metadataRequest(2))
				id, rest := receive(t, conn)
				if took := time.Since(begin); id != 1 || took != c.wantAnswer {
					t.Errorf("answer %d came after %s, want %s", id, took, c.wantAnswer)
				}
				if c.millisAt >= 0 {
					if millis := binary.BigEndian.Uint32(rest[c.millisAt:]); millis != 3001 {
						t.Errorf("throttle_time_ms is %d, want 3001", millis)
					}
				}
				wantID(t, conn, 2)
				if took := time.Since(begin); took != c.wantNext {
					t.Errorf("the next request was answered after %s, want %s", took, c.wantNext)
				}
				if d := cmp.Diff(c.wantPhases, <-phases); d != "" {
					t.Errorf("phases (-want +got):\n%s", d)
				}
				synctest.Wait()
				if used := f.options.Budget.Used(); used != 0 {
					t.Errorf("%d bytes of the budget are lost", used)
				}
			})
		})
	}
	t.Run("an answer that writes itself", func(t *testing.T) {
		older := &throttledFile{fileAnswer: fileAnswer{id: 1, n: 100}}
		newer := &throttledFile{fileAnswer: fileAnswer{id: 1, n: 100}, clientThrottles: true}
		without := &fileAnswer{id: 1, n: 100}
		for _, c := range []struct {
			answer     Response
			wantAnswer time.Duration
		}{{older, delay}, {newer, 0}, {without, delay}} {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, func(_ context.Context, r *Request) (Response, Pending) {
					r.Throttle(delay)
					return c.answer, nil
				}, nil)
				conn := f.dial()
				begin := time.Now()
				send(t, conn, produceRequest(1, -1))
				wantID(t, conn, 1)
				if took := time.Since(begin); took != c.wantAnswer {
					t.Errorf("%+v came after %s, want %s", c.answer, took, c.wantAnswer)
				}
			})
		}
		if older.millis != 3001 || newer.millis != 3001 {
			t.Errorf("throttle_time_ms %d and %d, want 3001", older.millis, newer.millis)
		}
	})
	t.Run("answers behind one that is held", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			f := start(t, h.Handle, nil)
			c := f.dial()
			begin := time.Now()
			send(t, c, produceBefore, produceRequest(2, -1), produceRequest(3, -1))
			synctest.Wait()
			h.parked[0].request.Throttle(delay)
			h.complete(0)
			h.complete(1)
			h.complete(2)
			for id := int32(1); id <= 3; id++ {
				wantID(t, c, id)
			}
			if took := time.Since(begin); took != delay {
				t.Errorf("three answers came after %s, want %s", took, delay)
			}
		})
	})
	t.Run("no answer, and a close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, func(_ context.Context, r *Request) (Response, Pending) {
				r.Throttle(delay)
				if r.Header.CorrelationID == 2 {
					return Close("acks=0: CORRUPT_MESSAGE"), nil
				}
				return nil, nil
			}, nil)
			c := f.dial()
			send(t, c, produceRequest(1, 0), produceRequest(2, 0))
			if took := wantClosed(t, c); took != delay {
				t.Errorf("closed after %s, want %s: the second request waits, its end does not", took, delay)
			}
		})
	})
	t.Run("Close lets go of what is held", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			answer := &throttledFile{fileAnswer: fileAnswer{id: 1, n: 100}}
			f := start(t, func(_ context.Context, r *Request) (Response, Pending) {
				r.Throttle(delay)
				return answer, nil
			}, nil)
			c := f.dial()
			send(t, c, bytes.Join([][]byte{produceRequest(1, -1), metadataRequest(2)}, nil))
			synctest.Wait()
			f.Close()
			if took := wantClosed(t, c); took != 0 || answer.abandons != 1 {
				t.Errorf("closed after %s, the answer let go %d times; want at once and once", took, answer.abandons)
			}
		})
	})
}

// A timed is a Pending that is over at a time, and says so to its owner.
type timed struct {
	request *Request
	due     time.Time
	over    func()
}

func (p *timed) Poll(now time.Time) (Response, bool) {
	if now.Before(p.due) {
		return nil, false
	}
	p.over()
	return p.request.Body.ResponseKind(), true
}
func (p *timed) Deadline() time.Time { return p.due }
func (p *timed) Cancel()             {}
