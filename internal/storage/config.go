package storage

import (
	"math"
	"time"
)

// LogConfig holds the topic-level settings that a [Log] heeds, each named after its key. A value is immutable once
// it was handed to a Log. -1 means "no limit" where Kafka says so.
type LogConfig struct {
	SegmentBytes      int64         // segment.bytes
	SegmentAge        time.Duration // segment.ms
	SegmentJitter     time.Duration // segment.jitter.ms: each segment rolls up to so much earlier
	SegmentIndexBytes int64         // segment.index.bytes
	IndexInterval     int64         // index.interval.bytes
	RetentionBytes    int64         // retention.bytes, -1 no limit
	Retention         time.Duration // retention.ms, negative: no limit
	MaxMessageBytes   int32         // max.message.bytes; held for those who validate, a Log takes any size
	FlushMessages     int64         // flush.messages; 1 is group commit, see [Log.Durable]
	FlushInterval     time.Duration // flush.ms
	FileDeleteDelay   time.Duration // file.delete.delay.ms
	CleanupDelete     bool          // cleanup.policy contains delete
	CleanupCompact    bool          // cleanup.policy contains compact
	// ProducerIDExpiration is producer.id.expiration.ms, a broker's setting.
	ProducerIDExpiration time.Duration
}

// DefaultLogConfig returns Kafka's defaults.
func DefaultLogConfig() LogConfig {
	return LogConfig{
		SegmentBytes:         1 << 30,
		SegmentAge:           7 * 24 * time.Hour,
		SegmentIndexBytes:    10 << 20,
		IndexInterval:        4096,
		RetentionBytes:       -1,
		MaxMessageBytes:      1<<20 + 12,
		Retention:            7 * 24 * time.Hour,
		FlushMessages:        math.MaxInt64,
		FlushInterval:        math.MaxInt64,
		FileDeleteDelay:      time.Minute,
		CleanupDelete:        true,
		ProducerIDExpiration: 24 * time.Hour,
	}
}
