package protocol

import (
	"bytes"
	"testing"
)

func TestRaftMessage(t *testing.T) {
	req := &RaftMessageRequest{From: 1, To: 1<<64 - 1, Payload: []byte("raft")}
	frame := AppendRequest(nil, req, 3, nil)
	h, body, err := ParseRequestHeader(frame[4:], nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(h, body)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.(*RaftMessageRequest); r.From != req.From || r.To != req.To || !bytes.Equal(r.Payload, req.Payload) {
		t.Errorf("%+v, want %+v", r, req)
	}
	_, resp, err := ParseResponse(AppendResponse(nil, ErrorAnswer(req, 41), 3)[4:], req)
	if err != nil || resp.(*RaftMessageResponse).ErrorCode != 41 {
		t.Errorf("%+v, %v", resp, err)
	}
	for _, a := range Advertised(OnController, OwnSoftware) {
		if a.ApiKey == RaftMessageKey {
			t.Error("RaftMessage is advertised")
		}
	}
}
