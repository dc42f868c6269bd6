package protocol

import (
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeLag(t *testing.T) {
	req := &DescribeLagRequest{Topics: []DescribeLagRequestTopic{{"t", []DescribeLagRequestPartition{{3, 1 << 40}, {0, 0}}}, {Topic: "u", Partitions: []DescribeLagRequestPartition{}}}}
	h, body, err := ParseRequestHeader(AppendRequest(nil, req, 9, nil)[4:], nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(h, body)
	if err != nil || !reflect.DeepEqual(got, kmsg.Request(req)) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range body {
		if _, err := Decode(h, body[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for the whole", n, len(body))
		}
	}
	want := &DescribeLagResponse{Topics: []DescribeLagResponseTopic{{"t", []DescribeLagResponsePartition{{3, 0, 1500, true}, {0, 6, -1, false}}}}}
	id, resp, err := ParseResponse(AppendResponse(nil, want, 9)[4:], req)
	if err != nil || id != 9 || !reflect.DeepEqual(resp, kmsg.Response(want)) {
		t.Errorf("%+v, %v", resp, err)
	}
	refused := ErrorAnswer(req, 29).(*DescribeLagResponse)
	if p := refused.Topics[0].Partitions; len(p) != 2 || p[0] != (DescribeLagResponsePartition{3, 29, -1, false}) {
		t.Errorf("%+v", refused)
	}
}

// TestPrivateAPIsAreOurs: only ottla's own client hears of a private API, and only where it is served.
func TestPrivateAPIsAreOurs(t *testing.T) {
	for _, c := range []struct {
		listener Listener
		software string
		want     bool
	}{{OnBroker, OwnSoftware, true}, {OnBroker, "apache-kafka-java", false}, {OnBroker, "", false}, {OnController, OwnSoftware, false}} {
		keys := Advertised(c.listener, c.software)
		if got := slices.ContainsFunc(keys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == DescribeLagKey }); got != c.want {
			t.Errorf("listener %d tells %q of DescribeLag: %v, want %v", c.listener, c.software, got, c.want)
		}
	}
}
