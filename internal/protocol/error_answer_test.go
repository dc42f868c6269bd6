package protocol

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errorCodes calls do with every field named ErrorCode below v.
func errorCodes(v reflect.Value, do func(code int64)) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			errorCodes(v.Index(i), do)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			errorCodes(v.Elem(), do)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "ErrorCode" {
				do(v.Field(i).Int())
			}
			errorCodes(v.Field(i), do)
		}
	}
}

// TestErrorAnswer: for every API and version, the answer carries the code wherever
// it has room for one, survives its own encoding, and reaches the client: at least
// one code is left after encoding at that version.
func TestErrorAnswer(t *testing.T) {
	const code = 41
	eachVersion(func(a *API, req kmsg.Request) {
		newFiller(5, 3).fill(req)
		decoded := newRequest(a.Key) // has only what this version has
		decoded.SetVersion(req.GetVersion())
		Gate(req)
		if err := decoded.ReadFrom(req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		resp := ErrorAnswer(decoded, code)
		if resp.Key() != a.Key || resp.GetVersion() != req.GetVersion() {
			t.Errorf("%s v%d: answered by key %d, version %d", a.Name, req.GetVersion(), resp.Key(), resp.GetVersion())
		}
		if !HasCode(resp, code) || HasCode(resp, code+1) {
			t.Errorf("%s v%d: HasCode does not find the code, or finds another", a.Name, req.GetVersion())
		}
		arrived := req.ResponseKind()
		if err := arrived.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Errorf("%s v%d: %v", a.Name, req.GetVersion(), err)
			return
		}
		found := 0
		errorCodes(deref(resp), func(got int64) {
			if got != code {
				t.Errorf("%s v%d: a code is %d, want %d", a.Name, req.GetVersion(), got, code)
			}
		})
		errorCodes(deref(arrived), func(got int64) {
			if got == code {
				found++
			}
		})
		if found == 0 && !hasNoCode[a.Name] {
			t.Errorf("%s v%d: no code reaches the client", a.Name, req.GetVersion())
		}
	})
}

// hasNoCode are the answers without any room for a code.
var hasNoCode = map[string]bool{}

// TestErrorAnswerNamesEverything: one code for each thing a request names.
func TestErrorAnswerNamesEverything(t *testing.T) {
	count := func(req kmsg.Request) (n int) {
		errorCodes(deref(ErrorAnswer(req, 3)), func(int64) { n++ })
		return n
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.Version = 9
	produce.Topics = []kmsg.ProduceRequestTopic{
		{Topic: "a", Partitions: make([]kmsg.ProduceRequestTopicPartition, 2)},
		{Topic: "b", Partitions: make([]kmsg.ProduceRequestTopicPartition, 3)},
	}
	if n := count(produce); n != 5 {
		t.Errorf("Produce of 5 partitions: %d codes", n)
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "a", Partitions: make([]kmsg.FetchRequestTopicPartition, 2)}}
	for version, want := range map[int16]int{12: 3, 13: 1} { // the top, and up to 12 the partitions
		fetch.Version = version
		if n := count(fetch); n != want {
			t.Errorf("Fetch v%d of 2 partitions: %d codes, want %d", version, n, want)
		}
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, []string{"g", "h"}
	resp := ErrorAnswer(find, 15).(*kmsg.FindCoordinatorResponse)
	if c := resp.Coordinators[1]; len(resp.Coordinators) != 2 || c.Key != "h" || c.ErrorCode != 15 || c.NodeID != -1 || c.Port != -1 {
		t.Errorf("FindCoordinator v4: %+v", resp.Coordinators)
	}
	topics := kmsg.NewPtrCreateTopicsRequest()
	topics.Version, topics.Topics = 7, []kmsg.CreateTopicsRequestTopic{{Topic: "a"}}
	if c := ErrorAnswer(topics, 7).(*kmsg.CreateTopicsResponse).Topics[0]; c.Configs == nil || c.NumPartitions != -1 {
		t.Errorf("CreateTopics: %+v, want empty configs, which null would crash a client, and -1 partitions", c)
	}
}
