package group

import (
	"fmt"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (g *consumerGroup) describeForTest() []string { return nil }

func (s *script) consumerRequest(d *datadriven.TestData, group, member string, instance *string, at func(int16) int16) kmsg.Request {
	d.Fatalf(s.t, "no command %s", d.Cmd)
	return nil
}

func showConsumerAnswer(resp kmsg.Response) string { return fmt.Sprintf("%+v", resp) }
func showConsumerRecord(r Record) string           { return fmt.Sprintf("%+v", r) }
