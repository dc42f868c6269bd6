package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

const heartbeatInterval = 2 * time.Second // broker.heartbeat.interval.ms

// A fakeController answers registrations and heartbeats, in a bubble, and writes down when what came.
type fakeController struct {
	began time.Time
	log   []string

	registration func(n int) (epoch int64, err *kerr.Error)                                               // the n-th, from 1
	heartbeat    func(n int, req *kmsg.BrokerHeartbeatRequest) (fenced, shouldStop bool, err *kerr.Error) // likewise
	hang         atomic.Bool                                                                              // the next one is not answered

	registrations, heartbeats int
}

func (c *fakeController) call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.BrokerRegistrationRequest:
		c.registrations++
		c.note("register")
		resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
		epoch, err := c.registration(c.registrations)
		resp.BrokerEpoch = epoch
		resp.ErrorCode = codeOf(err)
		return resp, nil
	case *kmsg.BrokerHeartbeatRequest:
		c.heartbeats++
		what := fmt.Sprintf("heartbeat of epoch %d at offset %d", req.BrokerEpoch, req.CurrentMetadataOffset)
		if req.WantShutdown {
			what += ", wants to stop"
		}
		if n := len(req.OfflineLogDirs); n > 0 {
			what += fmt.Sprintf(", %d directories offline", n)
		}
		c.note(what)
		if c.hang.Swap(false) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
		var err *kerr.Error
		resp.IsFenced, resp.ShouldShutdown, err = c.heartbeat(c.heartbeats, req)
		resp.ErrorCode = codeOf(err)
		return resp, nil
	}
	return nil, fmt.Errorf("a broker's lifecycle sent a %T", req)
}

func codeOf(err *kerr.Error) int16 {
	if err == nil {
		return 0
	}
	return err.Code
}

func (c *fakeController) note(what string) {
	c.log = append(c.log, fmt.Sprintf("%s %s", time.Since(c.began), what))
}

// A lifecycleTest is a lifecycle whose broker and controller are the test's.
type lifecycleTest struct {
	*lifecycle
	controller *fakeController
	offset     atomic.Int64 // what the broker has applied
	offline    []uuid.UUID
	ended      chan error
	stop       context.CancelFunc
}

func runLifecycle(t *testing.T, controller *fakeController) *lifecycleTest {
	controller.began = time.Now()
	l := &lifecycleTest{controller: controller, ended: make(chan error, 1)}
	l.lifecycle = &lifecycle{
		registration: &kmsg.BrokerRegistrationRequest{BrokerID: 1}, controller: controller.call, caughtUpTo: l.offset.Load,
		heartbeatInterval: heartbeatInterval, registerWithin: time.Minute, logger: slog.New(slog.DiscardHandler), offline: func() []uuid.UUID { return l.offline },
		kicks: make(chan struct{}, 1), unfenced: make(chan struct{}), mayStop: make(chan struct{}),
	}
	l.epoch.Store(-1)
	l.state.Store(int32(StateStarting))
	ctx, cancel := context.WithCancel(t.Context())
	l.stop = cancel
	go func() { l.ended <- l.run(ctx) }()
	return l
}

// after lets time pass and then everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *lifecycleTest) end(t *testing.T, want ...string) {
	t.Helper()
	l.stop()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the lifecycle ended with %v", err)
	}
	if d := cmp.Diff(want, l.controller.log); d != "" {
		t.Errorf("what the controller saw (-want +got):\n%s", d)
	}
}

func accepted(int) (int64, *kerr.Error) { return 7, nil }

// unfencing lets a broker in that has applied everything up to an offset, and stop when it wants to.
func unfencing(offset int64) func(int, *kmsg.BrokerHeartbeatRequest) (bool, bool, *kerr.Error) {
	return func(_ int, req *kmsg.BrokerHeartbeatRequest) (fenced, shouldStop bool, err *kerr.Error) {
		return req.CurrentMetadataOffset < offset, req.WantShutdown, nil
	}
}

func (l *lifecycleTest) isUnfenced() bool {
	select {
	case <-l.unfenced:
		return true
	default:
		return false
	}
}

// A broker tells at once that it has caught up, then heartbeats at the interval; a disk that fails is told at once.
func TestLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLifecycle(t, &fakeController{registration: accepted, heartbeat: unfencing(5)})
		after(10 * time.Millisecond)
		if state := l.State(); state != StateRecovery || l.isUnfenced() {
			t.Errorf("state %q, unfenced %v before it has caught up", state, l.isUnfenced())
		}
		l.offset.Store(5)
		l.applied()
		after(0)
		if state := l.State(); state != StateRunning || !l.isUnfenced() {
			t.Errorf("state %q, unfenced %v after it has caught up", state, l.isUnfenced())
		}
		l.offset.Store(6)
		l.applied() // nobody waits for this
		after(heartbeatInterval)
		l.offline = []uuid.UUID{uuid.Random()}
		l.kick()
		after(0)
		l.shutDown(t.Context())
		if state := l.State(); state != StateShuttingDown {
			t.Errorf("state %q after a controlled shutdown", state)
		}
		l.end(t,
			"0s register", "0s heartbeat of epoch 7 at offset 0", "10ms heartbeat of epoch 7 at offset 5",
			"2.01s heartbeat of epoch 7 at offset 6", "2.01s heartbeat of epoch 7 at offset 6, 1 directories offline",
			"2.01s heartbeat of epoch 7 at offset 6, wants to stop, 1 directories offline")
	})
}

// A registration is repeated, less and less often, until somebody takes it.
func TestLifecycleRegistersUntilAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLifecycle(t, &fakeController{heartbeat: unfencing(0), registration: func(n int) (int64, *kerr.Error) {
			if n <= 12 {
				return -1, kerr.DuplicateBrokerRegistration
			}
			return 7, nil
		}})
		after(3*time.Second + 500*time.Millisecond)
		if l.lastError() != nil || l.State() != StateRunning {
			t.Errorf("state %q, last error %v", l.State(), l.lastError())
		}
		l.end(t,
			"0s register", "1ms register", "3ms register", "7ms register", "15ms register", "31ms register", "63ms register",
			"127ms register", "255ms register", "511ms register", "1.023s register", "2.023s register", "3.023s register",
			"3.023s heartbeat of epoch 7 at offset 0")
	})
}

// What no repetition changes ends the broker, and says why.
func TestLifecycleRefused(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.InconsistentClusterID, kerr.InvalidRegistration, kerr.UnsupportedVersion} {
		synctest.Test(t, func(t *testing.T) {
			l := runLifecycle(t, &fakeController{registration: func(int) (int64, *kerr.Error) { return -1, refusal }})
			if err := <-l.ended; !errors.Is(err, refusal) || !strings.Contains(err.Error(), "broker 1") {
				t.Errorf("ended with %v, want %s", err, refusal.Message)
			}
			l.stop()
		})
	}
}

// A broker whom nobody lets in gives up after initial.broker.registration.timeout.ms and says what it was last told. One that had been
// let in goes on asking.
func TestLifecycleNeverRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLifecycle(t, &fakeController{registration: func(int) (int64, *kerr.Error) { return -1, kerr.NotController }})
		began := time.Now()
		err := <-l.ended
		if took := time.Since(began); took != time.Minute {
			t.Errorf("gave up after %s, want a minute", took)
		}
		if !errors.Is(err, kerr.NotController) || !strings.Contains(err.Error(), "initial.broker.registration.timeout.ms") {
			t.Errorf("ended with %v", err)
		}
		l.stop()

		l = runLifecycle(t, &fakeController{
			registration: func(n int) (int64, *kerr.Error) {
				if n > 1 && n < 100 {
					return -1, kerr.NotController
				}
				return int64(6 + n), nil
			},
			heartbeat: func(n int, _ *kmsg.BrokerHeartbeatRequest) (fenced, shouldStop bool, err *kerr.Error) {
				if n == 1 {
					return false, false, kerr.StaleBrokerEpoch
				}
				return false, false, nil
			},
		})
		after(3 * time.Minute)
		if state := l.State(); state != StateRunning {
			t.Errorf("state %q after it has registered again", state)
		}
		l.stop()
		if err := <-l.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

// A controller that does not answer is given up after a heartbeat's time, one that fails is asked again soon, and one that does
// not know the broker any more gets its registration.
func TestLifecycleOutlivesControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLifecycle(t, &fakeController{
			registration: func(n int) (int64, *kerr.Error) { return int64(6 + n), nil },
			heartbeat: func(n int, _ *kmsg.BrokerHeartbeatRequest) (fenced, shouldStop bool, err *kerr.Error) {
				switch n {
				case 3:
					return false, false, kerr.NotController
				case 4:
					return false, false, kerr.StaleBrokerEpoch
				}
				return false, false, nil
			},
		})
		after(time.Second)
		l.controller.hang.Store(true)
		after(4 * time.Second)
		l.end(t,
			"0s register", "0s heartbeat of epoch 7 at offset 0",
			"2s heartbeat of epoch 7 at offset 0", // not answered
			"4.1s heartbeat of epoch 7 at offset 0", "4.2s heartbeat of epoch 7 at offset 0",
			"4.2s register", "4.2s heartbeat of epoch 8 at offset 0")
	})
}

// A broker that has not been let in need not ask to stop, and no broker waits longer than it was told to.
func TestLifecycleShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLifecycle(t, &fakeController{registration: accepted, heartbeat: func(_ int, req *kmsg.BrokerHeartbeatRequest) (bool, bool, *kerr.Error) {
			return req.CurrentMetadataOffset == 0, false, nil // has never moved all leaderships away
		}})
		after(time.Millisecond)
		l.shutDown(t.Context())
		if state := l.State(); state != StateRecovery {
			t.Errorf("state %q, want that of a broker that was not let in", state)
		}
		l.offset.Store(1)
		l.applied()
		after(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		l.shutDown(ctx)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("waited for %s, want 3s", took)
		}
		l.end(t,
			"0s register", "0s heartbeat of epoch 7 at offset 0", "1ms heartbeat of epoch 7 at offset 1",
			"2ms heartbeat of epoch 7 at offset 1, wants to stop", "2.002s heartbeat of epoch 7 at offset 1, wants to stop")
	})
}
