package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/protocol"
	"ottla/internal/quorum"
	"ottla/internal/transport"
)

const forwardTimeout = 30 * time.Second // controller.socket.timeout.ms

// A fakeQuorum knows who leads, and nothing else.
type fakeQuorum struct {
	quorum.Quorum
	mu            sync.Mutex
	leader, epoch int32
}

func (q *fakeQuorum) Leader() (id, epoch int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leader, q.epoch
}

func (q *fakeQuorum) LeaderEndpoint() (quorum.Endpoint, bool) { return quorum.Endpoint{}, false }

func (q *fakeQuorum) elect(leader, epoch int32) {
	q.mu.Lock()
	q.leader, q.epoch = leader, epoch
	q.mu.Unlock()
}

// sealed is an envelope's answer with an answer in it.
func sealed(resp kmsg.Response) *kmsg.EnvelopeResponse {
	e := kmsg.NewPtrEnvelopeResponse()
	e.ResponseData = resp.AppendTo(protocol.AppendResponseHeader(nil, resp.Key(), resp.IsFlexible(), 0))
	return e
}

func refusedEnvelope(err *kerr.Error) *kmsg.EnvelopeResponse {
	e := kmsg.NewPtrEnvelopeResponse()
	e.ErrorCode = err.Code
	return e
}

func TestForward(t *testing.T) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.SetVersion(2)
	answered := sealed(req.ResponseKind())
	type attempt struct {
		resp *kmsg.EnvelopeResponse
		err  error
		hang bool // until it is given up
		then func(*fakeQuorum)
	}
	broken := &transport.ConnectionError{Address: "node1:9093", Err: net.ErrClosed}
	forGood := errors.New("anything else")
	for _, test := range []struct {
		name     string
		leaders  func(*fakeQuorum) // runs beside
		attempts []attempt         // the last one again and again
		want     error
		took     time.Duration
	}{
		{name: "at once", attempts: []attempt{{resp: answered}}},
		{name: "not the controller any more", attempts: []attempt{{resp: refusedEnvelope(kerr.NotController)}, {resp: answered}}, took: controllerPause},
		{name: "connection breaks", attempts: []attempt{{err: broken}, {err: broken}, {resp: answered}}, took: 2 * controllerPause},
		{name: "refused", attempts: []attempt{{resp: refusedEnvelope(kerr.ClusterAuthorizationFailed)}}, want: kerr.ClusterAuthorizationFailed},
		{name: "fails otherwise", attempts: []attempt{{err: forGood}}, want: forGood},
		{name: "never the controller", attempts: []attempt{{resp: refusedEnvelope(kerr.NotController)}}, want: kerr.NotController, took: forwardTimeout},
		{name: "elected later", leaders: func(q *fakeQuorum) {
			q.elect(-1, 3)
			time.Sleep(time.Second)
			q.elect(1, 4)
		}, attempts: []attempt{{resp: answered}}, took: time.Second},
		{name: "vanished, another is elected", attempts: []attempt{{hang: true, then: func(q *fakeQuorum) { q.elect(1, 4) }}, {resp: answered}},
			took: attemptTimeout + controllerPause},
		{name: "vanished, no other", attempts: []attempt{{hang: true}}, want: context.DeadlineExceeded, took: attemptTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &fakeQuorum{leader: 1, epoch: 2}
				asked := 0
				c := &controllers{quorum: q, nodeID: 1, timeout: forwardTimeout, local: func(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
					a := test.attempts[min(asked, len(test.attempts)-1)]
					asked++
					if a.then != nil {
						a.then(q)
					}
					if a.hang {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return a.resp, a.err
				}}
				if test.leaders != nil {
					go test.leaders(q)
					synctest.Wait()
				}
				began := time.Now()
				resp, err := c.forward(auth.With(t.Context(), &auth.Session{}), req)
				if took := time.Since(began); took < test.took || took > test.took+controllerPause {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				if !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				if _, ok := resp.(*kmsg.ElectLeadersResponse); !ok && test.want == nil {
					t.Errorf("answered with %T", resp)
				}
				time.Sleep(forwardTimeout) // for who runs beside
			})
		})
	}
}

// A client that goes away is not worked for any longer.
func TestForwardCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controllers{quorum: &fakeQuorum{leader: -1}, nodeID: 1, timeout: forwardTimeout}
		ctx, cancel := context.WithTimeout(auth.With(t.Context(), &auth.Session{}), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := c.forward(ctx, kmsg.NewPtrElectLeadersRequest()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that of the context", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %s after the client went, want none", took-time.Second)
		}
	})
}

// Apache's controllers answer for resources in any order, and what they leave out is an error, not another's answer.
func TestAlterConfigsAnswers(t *testing.T) {
	const topicType, brokerType = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	b := &Broker{nodeID: 1, logger: slog.New(slog.DiscardHandler)}
	b.controllers = &controllers{quorum: &fakeQuorum{leader: 1}, nodeID: 1, timeout: forwardTimeout,
		local: func(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
			_, inner, _, err := open(req.(*kmsg.EnvelopeRequest))
			if err != nil {
				return nil, err
			}
			resp := inner.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
			for _, r := range slices.Backward(inner.(*kmsg.IncrementalAlterConfigsRequest).Resources) {
				if r.ResourceName == "unanswered" {
					continue
				}
				out := kmsg.NewIncrementalAlterConfigsResponseResource()
				out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
				if r.ResourceName == "missing" {
					out.ErrorCode = kerr.UnknownTopicOrPartition.Code
				}
				resp.Resources = append(resp.Resources, out)
			}
			return sealed(resp), nil
		}}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	for _, r := range []struct {
		kind kmsg.ConfigResourceType
		name string
	}{{topicType, "missing"}, {brokerType, "2"}, {topicType, "unanswered"}, {brokerType, "1"}, {topicType, "there"}} {
		resource := kmsg.NewIncrementalAlterConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = r.kind, r.name
		req.Resources = append(req.Resources, resource)
	}
	var got []string
	for _, r := range b.incrementalAlterConfigs(auth.With(t.Context(), &auth.Session{}), req).Resources {
		name := "NONE"
		if err := kerr.TypedErrorForCode(r.ErrorCode); err != nil {
			name = err.Message
		}
		got = append(got, r.ResourceName+" "+name)
	}
	want := []string{"missing UNKNOWN_TOPIC_OR_PARTITION", "2 INVALID_REQUEST", "unanswered UNKNOWN_SERVER_ERROR", "1 NONE", "there NONE"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
}
