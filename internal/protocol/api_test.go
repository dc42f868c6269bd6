package protocol

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// apacheBroker and apacheController are what Apache Kafka 4.4.0 answers to
// ApiVersions on its two listeners: key, min, max.
var (
	apacheBroker = [][3]int16{
		{0, 0, 13}, {1, 4, 18}, {2, 1, 11}, {3, 0, 13}, {8, 2, 10}, {9, 1, 10}, {10, 0, 6}, {11, 0, 9}, {12, 0, 4}, {13, 0, 5}, {14, 0, 5},
		{15, 0, 6}, {16, 0, 5}, {17, 0, 1}, {18, 0, 5}, {19, 2, 7}, {20, 1, 6}, {21, 0, 2}, {22, 0, 5}, {23, 2, 4}, {24, 0, 5}, {25, 0, 4}, {26, 0, 5},
		{27, 1, 2}, {28, 0, 6}, {29, 1, 3}, {30, 1, 3}, {31, 1, 3}, {32, 1, 4}, {33, 0, 2}, {34, 1, 2}, {35, 1, 5}, {36, 0, 2}, {37, 0, 3}, {38, 1, 3},
		{39, 1, 2}, {40, 1, 2}, {41, 1, 3}, {42, 0, 3}, {43, 0, 2}, {44, 0, 1}, {45, 0, 1}, {46, 0, 0}, {47, 0, 0}, {48, 0, 1}, {49, 0, 1}, {50, 0, 0},
		{51, 0, 0}, {55, 0, 2}, {57, 0, 2}, {60, 0, 2}, {61, 0, 0}, {64, 0, 0}, {65, 0, 0}, {66, 0, 2}, {68, 0, 1}, {69, 0, 1}, {74, 0, 1}, {75, 0, 0},
		{76, 1, 1}, {77, 1, 1}, {78, 1, 2}, {79, 1, 2}, {80, 0, 1}, {81, 0, 0}, {83, 0, 0}, {84, 0, 0}, {85, 0, 1}, {86, 0, 0}, {87, 0, 1}, {88, 0, 1},
		{89, 0, 1}, {90, 0, 1}, {91, 0, 0}, {92, 0, 0}, {93, 0, 0}, {94, 0, 0},
	}
	apacheController = [][3]int16{
		{1, 4, 18}, {17, 0, 1}, {18, 0, 5}, {19, 2, 7}, {20, 1, 6}, {29, 1, 3}, {30, 1, 3}, {31, 1, 3}, {32, 1, 4}, {33, 0, 2}, {36, 0, 2}, {37, 0, 3},
		{38, 1, 3}, {39, 1, 2}, {40, 1, 2}, {41, 1, 3}, {43, 0, 2}, {44, 0, 1}, {45, 0, 1}, {46, 0, 0}, {49, 0, 1}, {50, 0, 0}, {51, 0, 0}, {52, 0, 2},
		{53, 0, 1}, {54, 0, 1}, {55, 0, 2}, {56, 2, 3}, {57, 0, 2}, {58, 0, 0}, {59, 0, 1}, {60, 0, 2}, {62, 0, 4}, {63, 0, 2}, {64, 0, 0}, {67, 0, 0},
		{70, 0, 0}, {73, 0, 0}, {80, 0, 1}, {81, 0, 0}, {82, 0, 0}, {94, 0, 0},
	}
)

// TestTableIsApaches: with everything built, the table advertises what Apache does
// (but for telemetry, 71 and 72, which Apache shows only with a plug-in).
func TestTableIsApaches(t *testing.T) {
	for _, c := range []struct {
		listener Listener
		apache   [][3]int16
	}{{OnBroker, apacheBroker}, {OnController, apacheController}} {
		var got [][3]int16
		for _, a := range apis {
			if a.Listeners&c.listener == 0 || a.Private || a.Key == 71 || a.Key == 72 {
				continue
			}
			low := a.Min
			if a.Key == produceKey {
				low = produceAdvertisedMin
			}
			got = append(got, [3]int16{a.Key, low, a.Max})
		}
		if !slices.Equal(got, c.apache) {
			t.Errorf("listener %d: the table has\n%v, Apache\n%v", c.listener, got, c.apache)
		}
		for _, k := range Advertised(c.listener, "apache-kafka-java") {
			if !slices.Contains(c.apache, [3]int16{k.ApiKey, k.MinVersion, k.MaxVersion}) {
				t.Errorf("listener %d advertises %d: %d-%d, which Apache does not", c.listener, k.ApiKey, k.MinVersion, k.MaxVersion)
			}
		}
	}
}

func TestTableIsSound(t *testing.T) {
	for i, a := range apis {
		if i > 0 && apis[i-1].Key >= a.Key {
			t.Errorf("%s is out of order", a.Name)
		}
		if a.Built&^a.Listeners != 0 {
			t.Errorf("%s is built on a listener where Apache has not got it", a.Name)
		}
		if (a.Operation == noOperation) != (a.Resource == noResource) {
			t.Errorf("%s has an operation without a resource or the reverse", a.Name)
		}
		if a.Pipelined != (a.Name == "Produce") {
			t.Errorf("%s: pipelined is %v; only Produce overlaps, only with itself", a.Name, a.Pipelined)
		}
		got, ok := Lookup(a.Key)
		if !ok || got.Name != a.Name {
			t.Errorf("Lookup(%d) = %v, %v", a.Key, got, ok)
		}
		if req := newRequest(a.Key); req.Key() != a.Key || req.MaxVersion() < a.Max {
			t.Errorf("%s: kmsg's request has key %d and versions up to %d, want %d and at least %d", a.Name, req.Key(), req.MaxVersion(), a.Key, a.Max)
		}
	}
	for _, key := range []int16{-1, 4, 5, 6, 7, 95, 127, 128, 9999, 10002, -32768, 32767} {
		if a, ok := Lookup(key); ok {
			t.Errorf("Lookup(%d) = %s, want none", key, a.Name)
		}
	}
}

// TestSchemasAgreeWithKmsg: Apache's schema and kmsg call the same versions flexible.
func TestSchemasAgreeWithKmsg(t *testing.T) {
	eachVersion(func(a *API, req kmsg.Request) {
		h := RequestHeader{Key: a.Key, Version: req.GetVersion()}
		if h.Flexible() != req.IsFlexible() {
			t.Errorf("%s v%d: flexible is %v by Apache's schema, %v by kmsg", a.Name, h.Version, h.Flexible(), req.IsFlexible())
		}
	})
}

func TestServes(t *testing.T) {
	for _, c := range []struct {
		key      int16
		listener Listener
		version  int16
		want     bool
	}{
		{0, OnBroker, 3, true},
		{0, OnBroker, 2, false}, // advertised from 0, served from 3
		{0, OnController, 9, false},
		{3, OnBroker, 99, false},
		{3, OnBroker, -1, false},
		{52, OnController, 1, false}, // Vote: Apache's controllers never vote with ours
		{56, OnBroker, 3, false},
		{56, OnController, 3, true},
		{63, OnBroker, 2, false},
		{RaftMessageKey, OnController, 0, true},
		{RaftMessageKey, OnBroker, 0, false},
		{DescribeLagKey, OnBroker, 0, true},
		{DescribeLagKey, OnController, 0, false},
	} {
		a, _ := Lookup(c.key)
		if got := a.Serves(c.listener, c.version); got != c.want {
			t.Errorf("%s v%d on listener %d: Serves = %v, want %v", a.Name, c.version, c.listener, got, c.want)
		}
	}
}
