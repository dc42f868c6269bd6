package quorum

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// voterMetrics are what a voter tells of itself.
type voterMetrics struct {
	collectors []prometheus.Collector
	commit     prometheus.Histogram
	// proposed is when the entries were proposed that wait to be committed, in their order; the driver's.
	proposed []time.Time
}

// newVoterMetrics makes a voter's metrics and registers them, if there is where.
func newVoterMetrics(v *Voter, to prometheus.Registerer) (*voterMetrics, error) {
	m := &voterMetrics{commit: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "ottla_raft_commit_duration_seconds",
		Help:    "Time from the proposal of a change of the metadata until it was committed and applied on the leader.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), // 0.5 ms to 4 s
	})}
	m.collectors = append(m.collectors, m.commit, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ottla_raft_term", Help: "Leader epoch of the metadata quorum as of the last change of leader that was applied.",
	}, func() float64 { return float64(v.log.view().leader.epoch) }))
	for role, leads := range map[string]bool{"leader": true, "follower": false} {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ottla_raft_role", Help: "1 for the role that this controller has in the metadata quorum.",
			ConstLabels: prometheus.Labels{"role": role},
		}, func() float64 {
			if leads == (v.log.view().leader.id == v.self.nodeID) {
				return 1
			}
			return 0
		}))
	}
	if to == nil {
		return m, nil
	}
	for i, c := range m.collectors {
		if err := to.Register(c); err != nil {
			m.collectors = m.collectors[:i]
			m.unregister(to)
			return nil, err
		}
	}
	return m, nil
}

func (m *voterMetrics) unregister(from prometheus.Registerer) {
	if from == nil {
		return
	}
	for _, c := range m.collectors {
		from.Unregister(c)
	}
}

// committed notes that count entries of this leader's were applied.
func (m *voterMetrics) committed(count int) {
	count = min(count, len(m.proposed))
	now := time.Now()
	for _, at := range m.proposed[:count] {
		m.commit.Observe(now.Sub(at).Seconds())
	}
	m.proposed = m.proposed[count:]
}
