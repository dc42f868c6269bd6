package broker

import (
	"context"
	"io"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/protocol"
)

// Every request is authorised before anything is done for it, but those by which a client finds out how to talk.
func TestEveryRequestIsAuthorised(t *testing.T) {
	var asked atomic.Int64
	b := startNode(t, newDisk(t), nil)
	b.authorizer = func(context.Context, auth.Operation, auth.ResourceType, string) bool {
		asked.Add(1)
		return false
	}
	free := map[int16]bool{int16(kmsg.ApiVersions): true, int16(kmsg.SASLHandshake): true, int16(kmsg.SASLAuthenticate): true, int16(kmsg.DescribeCluster): true}
	addresses := map[protocol.Listener]string{protocol.OnBroker: b.Addr(""), protocol.OnController: b.advertised(protocol.OnController)[0].HostPort()}
	for listener, address := range addresses {
		for key := range int16(protocol.RaftMessageKey + 1) {
			api, ok := protocol.Lookup(key)
			if !ok || api.Built&listener == 0 || free[key] {
				continue
			}
			before := asked.Load()
			resp := exchangeOnce(t, address, example(api))
			if asked.Load() == before {
				t.Errorf("%s on listener %d was handled without asking the authorizer", api.Name, listener)
			}
			if resp != nil && !hasAuthorizationError(resp) && key != int16(kmsg.ListGroups) && !api.Private {
				t.Errorf("%s on listener %d was answered with %+v, want an authorization error", api.Name, listener, resp)
			}
		}
	}
}

func hasAuthorizationError(resp kmsg.Response) bool {
	for _, err := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed} {
		if protocol.HasCode(resp, err.Code) {
			return true
		}
	}
	return false
}

// example is a request of an API with one element in each of its arrays and the name t everywhere.
func example(api *protocol.API) kmsg.Request {
	req := kmsg.RequestForKey(api.Key)
	if api.Private {
		req = &protocol.RaftMessageRequest{}
	}
	fill(reflect.ValueOf(req).Elem())
	req.SetVersion(api.Max)
	switch req := req.(type) {
	case *kmsg.FetchRequest:
		req.SetVersion(12) // by name, as there is no topic of that id
		req.SessionEpoch, req.SessionID = finalEpoch, 0
	case *kmsg.ProduceRequest:
		req.SetVersion(12)
		req.Acks, req.TransactionID = acksAll, nil
	case *kmsg.DescribeConfigsRequest:
		req.Resources[0].ResourceType = kmsg.ConfigResourceTypeTopic
	}
	return req
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Type().Field(i).IsExported() && name != "UnknownTags" {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("t")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	}
}

// exchangeOnce asks over a connection of its own; nil if that was closed instead of an answer.
func exchangeOnce(t *testing.T, address string, req kmsg.Request) kmsg.Response {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(protocol.AppendRequest(nil, req, 1, kmsg.StringPtr("t"))); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err == io.EOF {
		return nil
	} else if err != nil {
		t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	frame := make([]byte, int(size[0])<<24|int(size[1])<<16|int(size[2])<<8|int(size[3]))
	if _, err := io.ReadFull(conn, frame); err != nil {
		t.Fatal(err)
	}
	_, resp, err := protocol.ParseResponse(frame, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
