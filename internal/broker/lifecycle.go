package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
	"ottla/internal/uuid"
)

// State is what a broker is doing, by Kafka's BrokerState numbers.
type State int32

const (
	StateStarting           State = 1 // reading its directories, catching up with the metadata
	StateRecovery           State = 2 // registered, fenced until caught up
	StateRunning            State = 3 // unfenced: it leads, follows and serves
	StateControlledShutdown State = 6 // waits until the controller has moved its leaderships
	StateShuttingDown       State = 7
)

func (s State) String() string {
	switch s {
	case StateStarting:
		return "starting"
	case StateRecovery:
		return "recovery"
	case StateRunning:
		return "running"
	case StateControlledShutdown:
		return "controlled shutdown"
	case StateShuttingDown:
		return "shutting down"
	}
	return "not running"
}

// call sends a request to whoever answers it, directly or over TCP, and returns the answer.
type call func(ctx context.Context, req kmsg.Request) (kmsg.Response, error)

// The lifecycle registers the broker with the active controller and keeps the registration alive by heartbeats
// (Kafka's BrokerLifecycleManager). One goroutine, run, owns it.
//
// A broker that has news for the controller (it caught up, it wants to stop) does not wait for the next
// heartbeat's time: kick sends one now. So a lone node is unfenced as soon as it has caught up.
type lifecycle struct {
	registration      *kmsg.BrokerRegistrationRequest // sent until accepted
	controller        call
	caughtUpTo        func() int64 // offset of the last metadata record that this broker has applied
	heartbeatInterval time.Duration
	registerWithin    time.Duration // initial.broker.registration.timeout.ms: for the first registration
	logger            *slog.Logger

	state    atomic.Int32
	epoch    atomic.Int64 // broker epoch, -1 until registered
	kicks    chan struct{}
	unfenced chan struct{} // closed when first unfenced
	once     sync.Once     // for unfenced: a broker that had to register again is unfenced again
	mayStop  chan struct{} // closed when the controller lets a stopping broker go
	stopping atomic.Bool
	offline  func() []uuid.UUID    // log directories that failed
	last     atomic.Pointer[error] // the last call's
}

// newLifecycle prepares the registration of this node's broker.
func (b *Broker) newLifecycle() *lifecycle {
	l := &lifecycle{
		registration: b.registration(), controller: b.controllers.active, caughtUpTo: func() int64 { return b.image().Offset },
		heartbeatInterval: b.static.Duration("broker.heartbeat.interval.ms"), registerWithin: b.static.Duration("initial.broker.registration.timeout.ms"),
		logger: b.logger, offline: b.failedDirs,
		kicks: make(chan struct{}, 1), unfenced: make(chan struct{}), mayStop: make(chan struct{}),
	}
	l.epoch.Store(-1)
	l.state.Store(int32(StateStarting))
	return l
}

// registration says where this broker listens, what it supports and which directories it has. Of a clean shutdown it
// names the epoch, by which the controller knows that the replicas here lost nothing (KIP-966).
func (b *Broker) registration() *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.ClusterID, req.IncarnationID = b.nodeID, b.clusterID, b.incarnation
	if rack := b.static.String("broker.rack"); rack != "" {
		req.Rack = &rack
	}
	for _, e := range b.advertised(protocol.OnBroker) {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, uint16(e.Port), securityProtocols[e.SecurityProtocol]
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range protocol.Features() {
		rf := kmsg.NewBrokerRegistrationRequestFeature()
		rf.Name, rf.MinSupportedVersion, rf.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, rf)
	}
	req.PreviousBrokerEpoch = -1
	for i, d := range b.dataDirs() {
		req.LogDirs = append(req.LogDirs, d.ID())
		if epoch := d.CleanShutdownEpoch(); i == 0 || epoch < req.PreviousBrokerEpoch {
			req.PreviousBrokerEpoch = epoch // only if every directory was left cleanly
		}
	}
	return req
}

// securityProtocols are Kafka's codes of SecurityProtocol.
var securityProtocols = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

// note keeps the outcome of a call, for whoever asks why it takes so long.
func (l *lifecycle) note(err error) {
	if err != nil {
		l.logger.Debug("the controller turned a registration or heartbeat down", "error", err)
	}
	l.last.Store(&err)
}

// lastError is the outcome of the last call; nil if it went well or there was none.
func (l *lifecycle) lastError() error {
	if p := l.last.Load(); p != nil {
		return *p
	}
	return nil
}

// applied tells the controller at once how far this broker has come, while that is what the controller waits for: to unfence
// the broker, or to let it stop once it has seen its leaderships go.
func (l *lifecycle) applied() {
	if s := l.State(); s == StateRecovery || s == StateControlledShutdown {
		l.kick()
	}
}

const (
	registrationRetry    = time.Millisecond // first pause between attempts; doubles up to the maximum
	registrationRetryMax = time.Second
	heartbeatRetry       = 100 * time.Millisecond
)

func (l *lifecycle) State() State { return State(l.state.Load()) }

// kick sends a heartbeat soon.
func (l *lifecycle) kick() {
	select {
	case l.kicks <- struct{}{}:
	default:
	}
}

// run registers and heartbeats until ctx ends.
func (l *lifecycle) run(ctx context.Context) error {
	if err := l.registerFirst(ctx); err != nil {
		return err
	}
	l.state.CompareAndSwap(int32(StateStarting), int32(StateRecovery))
	for {
		next, err := l.heartbeat(ctx)
		if errors.Is(err, errReregister) {
			if err := l.register(ctx); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.kicks:
		case <-time.After(next):
		}
	}
}

// registerFirst is register, given up when its time is over: a broker that nobody lets in is to be seen to fail. One that has been in
// goes on for ever.
func (l *lifecycle) registerFirst(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, l.registerWithin)
	defer cancel()
	err := l.register(within)
	if err == nil || ctx.Err() != nil || within.Err() == nil {
		return err
	}
	return fmt.Errorf("broker %d was not registered within initial.broker.registration.timeout.ms (%s): see that the controllers run and "+
		"are those that this broker is configured with (the last answer: %w)", l.registration.BrokerID, l.registerWithin, cmp.Or(l.lastError(), err))
}

// register repeats the registration until the controller accepts it or refuses it for good.
func (l *lifecycle) register(ctx context.Context) error {
	for delay := registrationRetry; ; delay = min(2*delay, registrationRetryMax) {
		resp, err := l.call(ctx, l.registration)
		if err == nil {
			r := resp.(*kmsg.BrokerRegistrationResponse)
			if err = kerr.ErrorForCode(r.ErrorCode); err == nil {
				l.epoch.Store(r.BrokerEpoch)
				l.logger.Debug("registered", "brokerEpoch", r.BrokerEpoch)
				return nil
			}
			if refusedForGood(err) {
				return fmt.Errorf("the controller refuses to register broker %d: %w", l.registration.BrokerID, err)
			}
		}
		l.note(err)
		if !pause(ctx, delay) {
			return ctx.Err()
		}
	}
}

// call asks the controller, for as long as a heartbeat lasts: one that has vanished without a word must not keep this broker
// from asking the next.
func (l *lifecycle) call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, l.heartbeatInterval)
	defer cancel()
	return l.controller(ctx, req)
}

// refusedForGood tells the answers that no repetition changes. DUPLICATE_BROKER_REGISTRATION passes when the
// former incarnation's session ends.
func refusedForGood(err error) bool {
	return errors.Is(err, kerr.InconsistentClusterID) || errors.Is(err, kerr.InvalidRegistration) || errors.Is(err, kerr.UnsupportedVersion)
}

// errReregister says that the controller does not know this incarnation (any longer).
var errReregister = errors.New("broker must register again")

// heartbeat sends one heartbeat and says when the next is due.
func (l *lifecycle) heartbeat(ctx context.Context) (next time.Duration, err error) {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version = req.MaxVersion()
	req.BrokerID = l.registration.BrokerID
	req.BrokerEpoch = l.epoch.Load()
	req.CurrentMetadataOffset = l.caughtUpTo()
	req.WantShutdown = l.stopping.Load()
	for _, dir := range l.offline() {
		req.OfflineLogDirs = append(req.OfflineLogDirs, dir)
	}
	req.CordonedLogDirs = [][16]byte{} // null would say that this broker does not know yet
	answer, err := l.call(ctx, req)
	if err == nil {
		err = kerr.ErrorForCode(answer.(*kmsg.BrokerHeartbeatResponse).ErrorCode)
	}
	l.note(err)
	switch {
	case errors.Is(err, kerr.StaleBrokerEpoch), errors.Is(err, kerr.BrokerIDNotRegistered):
		return 0, errReregister
	case err != nil:
		return heartbeatRetry, nil
	}
	l.settle(answer.(*kmsg.BrokerHeartbeatResponse))
	return l.heartbeatInterval, nil
}

// settle moves the state on by what the controller answered.
func (l *lifecycle) settle(resp *kmsg.BrokerHeartbeatResponse) {
	switch l.State() {
	case StateRecovery:
		if !resp.IsFenced {
			l.state.Store(int32(StateRunning))
			l.once.Do(func() { close(l.unfenced) })
		}
	case StateControlledShutdown:
		if resp.ShouldShutdown {
			l.state.Store(int32(StateShuttingDown))
			close(l.mayStop)
		}
	}
}

// shutDown asks the controller to move this broker's leaderships away, and waits until it agrees or ctx ends
// (controlled shutdown). A broker that never registered need not ask.
func (l *lifecycle) shutDown(ctx context.Context) {
	if l.epoch.Load() < 0 || !l.state.CompareAndSwap(int32(StateRunning), int32(StateControlledShutdown)) {
		return
	}
	l.stopping.Store(true)
	l.kick()
	select {
	case <-l.mayStop:
	case <-ctx.Done():
	}
}
