package group

import (
	"time"

	"ottla/internal/config"
)

// Settings are what a machine is configured with. They never change; [Machine.Configure] replaces them.
type Settings struct {
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	MaxSize               int           // group.max.size, members

	OffsetMetadataMaxBytes        int           // offset.metadata.max.bytes
	OffsetsRetention              time.Duration // offsets.retention.minutes
	OffsetsRetentionCheckInterval time.Duration // offsets.retention.check.interval.ms

	ConsumerMaxSize      int             // group.consumer.max.size, members
	ConsumerAssignors    []string        // group.consumer.assignors, the default first
	MigrationPolicy      MigrationPolicy // group.consumer.migration.policy
	RegexRefreshInterval time.Duration   // group.consumer.regex.refresh.interval.ms
	// MaxRecordBytes bounds what a member's request puts into one record: message.max.bytes less a batch's header. A classic group that
	// would not fit gets UNKNOWN_SERVER_ERROR, as with Apache. (The log takes any size, so what grows elsewhere, such as what an expression
	// matches, is written all the same.)
	MaxRecordBytes int

	config   *config.Config // for what a group sets for itself
	defaults consumerSettings
}

// A MigrationPolicy says which way groups may change their protocol while members are in them.
type MigrationPolicy struct{ Upgrade, Downgrade bool }

// NewSettings reads the settings from a broker's configuration.
func NewSettings(c *config.Config) *Settings {
	s := &Settings{
		InitialRebalanceDelay: c.Duration("group.initial.rebalance.delay.ms"),
		MinSessionTimeout:     c.Duration("group.min.session.timeout.ms"),
		MaxSessionTimeout:     c.Duration("group.max.session.timeout.ms"),
		MaxSize:               c.Int("group.max.size"),

		OffsetMetadataMaxBytes:        c.Int("offset.metadata.max.bytes"),
		OffsetsRetention:              c.Duration("offsets.retention.minutes"),
		OffsetsRetentionCheckInterval: c.Duration("offsets.retention.check.interval.ms"),

		ConsumerMaxSize:      c.Int("group.consumer.max.size"),
		ConsumerAssignors:    c.List("group.consumer.assignors"),
		MigrationPolicy:      migrationPolicy(c.String("group.consumer.migration.policy")),
		RegexRefreshInterval: c.Duration("group.consumer.regex.refresh.interval.ms"),
		MaxRecordBytes:       c.Int("message.max.bytes") - 1024,

		config: c,
	}
	s.defaults = s.consumerOf(nil)
	return s
}

// consumerSettings are those that a consumer group may set for itself.
type consumerSettings struct {
	sessionTimeout, heartbeatInterval, assignmentInterval time.Duration
}

// consumer returns the settings of a group that overrides some. A value that the broker's bounds do not allow, or no more, counts as the
// nearest that they do. Source: GroupConfig.evaluate.
func (s *Settings) consumer(overrides map[string]string) consumerSettings {
	if overrides == nil {
		return s.defaults
	}
	return s.consumerOf(overrides)
}

func (s *Settings) consumerOf(overrides map[string]string) consumerSettings {
	g := s.config.Group(overrides)
	of := func(name string) time.Duration {
		least, most := s.config.Int("group.consumer.min."+name), s.config.Int("group.consumer.max."+name)
		return ms(int32(min(max(g.Int("consumer."+name), least), most)))
	}
	return consumerSettings{of("session.timeout.ms"), of("heartbeat.interval.ms"), of("assignment.interval.ms")}
}
