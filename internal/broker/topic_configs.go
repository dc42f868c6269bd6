package broker

import (
	"math"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/quorum"
	"ottla/internal/record"
	"ottla/internal/replica"
	"ottla/internal/storage"
)

// replicaConfig is the configuration of a topic as package replica and its logs heed it.
func (b *Broker) replicaConfig(topic string, img *metadata.Image) replica.Config {
	c := b.config()
	t := c.Topic(img.Config(metadata.TopicResource(topic)))
	return replica.Config{Log: logConfig(c, t), MinInSyncReplicas: t.MinInsyncReplicas, Produce: produceRules(c, t)}
}

// storedLogConfig tells how topics' logs are kept by the metadata in this node's own files. Recovery builds indexes by it, and
// cannot wait until the controllers have said what is committed. What cannot be read costs no more than that: whoever follows
// the metadata meets it too.
func (b *Broker) storedLogConfig() func(topic string) storage.LogConfig {
	loader := metadata.NewLoader(metadata.Empty)
	err := b.quorum.Stored(func(event quorum.Event) error {
		_, err := load(loader, event)
		return err
	})
	img := loader.Image()
	if err != nil {
		b.logger.Warn("the metadata in this node's files cannot be read to its end; logs that need recovery are opened by the settings up to there",
			"offset", img.Offset, "error", err)
	}
	c := b.static.WithDynamic(img.Config(metadata.BrokerResource(b.nodeID)), img.Config(metadata.ClusterDefaults))
	return func(topic string) storage.LogConfig {
		return logConfig(c, c.Topic(img.Config(metadata.TopicResource(topic))))
	}
}

func logConfig(c *config.Config, t *config.Topic) storage.LogConfig {
	return storage.LogConfig{
		SegmentBytes: int64(t.SegmentBytes), SegmentAge: t.SegmentAge, SegmentJitter: t.SegmentJitter,
		SegmentIndexBytes: int64(t.SegmentIndexBytes), IndexInterval: int64(t.IndexIntervalBytes),
		RetentionBytes: t.RetentionBytes, Retention: t.Retention, MaxMessageBytes: int32(min(t.MaxMessageBytes, math.MaxInt32)),
		FlushMessages: t.FlushMessages, FlushInterval: t.FlushInterval, FileDeleteDelay: t.FileDeleteDelay,
		CleanupDelete: t.CleanupDelete, CleanupCompact: t.CleanupCompact,
		ProducerIDExpiration: c.Duration("producer.id.expiration.ms"),
	}
}

// produceRules are what a producer's batch for the topic must satisfy.
func produceRules(c *config.Config, t *config.Topic) record.Produce {
	p := record.Produce{
		MaxMessageBytes: int32(min(t.MaxMessageBytes, math.MaxInt32)),
		BeforeMaxMs:     t.MessageTimestampBeforeMaxMs, AfterMaxMs: t.MessageTimestampAfterMaxMs,
		Compression: compression(t), Compacted: t.CleanupCompact,
		MaxDecompressedBytes: min(c.Bytes("ottla.produce.max.decompressed.bytes"), int64(t.MaxDecompressedMessageBytes)),
	}
	if t.LogAppendTime {
		p.TimestampType = record.LogAppendTime
	}
	return p
}

// compression is compression.type with its level.
func compression(t *config.Topic) record.Compression {
	switch t.CompressionType {
	case "uncompressed":
		return record.Compression{Codec: record.None}
	case "gzip":
		return record.Compression{Codec: record.Gzip, Level: t.CompressionGzipLevel}
	case "snappy":
		return record.Compression{Codec: record.Snappy}
	case "lz4":
		return record.Compression{Codec: record.LZ4, Level: t.CompressionLz4Level}
	case "zstd":
		return record.Compression{Codec: record.Zstd, Level: t.CompressionZstdLevel}
	}
	return record.Compression{Codec: record.Producer}
}
