package config

import (
	"testing"
)

func TestDefaultStarts(t *testing.T) {
	c := Default()
	if got := c.Listeners(); len(got) != 2 || got[0].String() != "PLAINTEXT://127.0.0.1:9092" || got[1].String() != "CONTROLLER://127.0.0.1:9093" {
		t.Errorf("listeners %v", got)
	}
	if !c.LoneNode() || c.Int("offsets.topic.replication.factor") != 1 || c.NodeID() != 1 {
		t.Errorf("lone %v, factor %d, node %d", c.LoneNode(), c.Int("offsets.topic.replication.factor"), c.NodeID())
	}
}
