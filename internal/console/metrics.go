package console

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// States are the values of the label state of ottla_broker_state (Kafka's BrokerState).
var States = []string{"not_running", "starting", "recovery", "running", "controlled_shutdown", "shutting_down"}

// register adds the collectors of the process and the node.
func register(r prometheus.Registerer, n Node, info Info) error {
	return errors.Join(
		r.Register(collectors.NewGoCollector()),
		r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		r.Register(constant("ottla_build_info", "The build of this ottla; always 1.",
			prometheus.Labels{"version": info.Version, "revision": info.Revision, "goversion": runtime.Version()})),
		r.Register(constant("ottla_broker_info", "What this node is; always 1.",
			prometheus.Labels{"node_id": strconv.Itoa(int(info.NodeID)), "rack": info.Rack, "roles": strings.Join(info.Roles, ",")})),
		r.Register(stateCollector{n}),
	)
}

func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}

var stateDesc = prometheus.NewDesc("ottla_broker_state", "1 for the state the broker is in, 0 for every other.", []string{"state"}, nil)

// A stateCollector asks the node for its state at each scrape.
type stateCollector struct{ node Node }

func (stateCollector) Describe(c chan<- *prometheus.Desc) { c <- stateDesc }

func (s stateCollector) Collect(c chan<- prometheus.Metric) {
	now := strings.ReplaceAll(s.node.State(), " ", "_")
	states := States
	if !slices.Contains(states, now) {
		states = append(slices.Clone(states), now)
	}
	for _, state := range states {
		value := 0.0
		if state == now {
			value = 1
		}
		c <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, value, state)
	}
}
