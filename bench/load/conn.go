//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("load"))

// A conn is one connection to the broker, which answers its requests in order. One goroutine may send while another receives.
type conn struct {
	net.Conn
	in             *bufio.Reader
	out            []byte
	sent, received int32 // correlation ids of the last request and of the last answer
}

// connect opens a connection that ctx closes.
func connect(ctx context.Context, addr string) (*conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { nc.Close() })
	return &conn{Conn: nc, in: bufio.NewReaderSize(nc, 1<<10)}, nil
}

// send writes one request.
func (c *conn) send(req kmsg.Request) error {
	c.sent++
	c.out = formatter.AppendRequest(c.out[:0], req, c.sent)
	_, err := c.Write(c.out)
	return err
}

// frame reads the next answer as it is.
func (c *conn) frame() ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, err
	}
	c.received++
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != c.received {
		return nil, fmt.Errorf("an answer with correlation id %d where %d is due", got, c.received)
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > 100<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", size)
	}
	body := make([]byte, size-4)
	_, err := io.ReadFull(c.in, body)
	return body, err
}

// decode reads the answer to a request out of its frame.
func decode(req kmsg.Request, frame []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	if req.IsFlexible() {
		if len(frame) < 1 || frame[0] != 0 {
			return nil, fmt.Errorf("%s: an answer with tags in its header", kmsg.NameForKey(req.Key()))
		}
		frame = frame[1:]
	}
	if err := resp.ReadFrom(frame); err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp, nil
}

// call sends a request and waits for its answer.
func (c *conn) call(req kmsg.Request) (kmsg.Response, error) {
	if err := c.send(req); err != nil {
		return nil, err
	}
	frame, err := c.frame()
	if err != nil {
		return nil, err
	}
	return decode(req, frame)
}

// unexpected is the error of an answer that nobody should get.
func unexpected(req kmsg.Request, code int16) error {
	return fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), kerr.ErrorForCode(code))
}

// retriable reports whether an error means that the coordinator is not there yet.
func retriable(code int16) bool {
	return code == kerr.CoordinatorNotAvailable.Code || code == kerr.CoordinatorLoadInProgress.Code || code == kerr.NotCoordinator.Code
}

// pause is how long who is told so waits: retry.backoff.ms of Kafka's clients.
const pause = 100 * time.Millisecond

// A topic is one that exists.
type topic struct {
	name       string
	id         [16]byte
	partitions int
}

// prepare makes the topic if need be, and waits until the coordinator of a group can be found.
func prepare(ctx context.Context, f *flags, group string) (topic, error) {
	t := topic{name: f.topic, partitions: f.partitions}
	c, err := connect(ctx, f.addr)
	if err != nil {
		return t, err
	}
	defer c.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 7, 60_000
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = t.name, int32(t.partitions), 1
	create.Topics = append(create.Topics, ct)
	resp, err := c.call(create)
	if err != nil {
		return t, err
	}
	if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 && code != kerr.TopicAlreadyExists.Code {
		return t, fmt.Errorf("create topic %s: %w", t.name, kerr.ErrorForCode(code))
	}
	for ready := false; !ready; {
		if t.id, ready, err = c.ready(t, group); err != nil {
			return t, err
		}
		if !ready {
			if err := sleep(ctx, pause); err != nil {
				return t, fmt.Errorf("wait for topic %s and the coordinator of group %s: %w", t.name, group, err)
			}
		}
	}
	return t, nil
}

// ready reports whether the topic is there and the group's coordinator known.
func (c *conn) ready(t topic, group string) (id [16]byte, ok bool, err error) {
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.AllowAutoTopicCreation = 12, false
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &t.name
	meta.Topics = append(meta.Topics, mt)
	resp, err := c.call(meta)
	if err != nil {
		return id, false, err
	}
	found := resp.(*kmsg.MetadataResponse).Topics[0]
	switch {
	case found.ErrorCode != 0:
		return id, false, nil
	case len(found.Partitions) != t.partitions:
		return id, false, fmt.Errorf("topic %s has %d partitions, not %d", t.name, len(found.Partitions), t.partitions)
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, []string{group}
	if resp, err = c.call(find); err != nil {
		return id, false, err
	}
	return found.TopicID, resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode == 0, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
