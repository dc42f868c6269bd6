package config

// ottlaKeys are ours. They are few, begin with ottla., and exist only where Kafka has no word for the
// thing.
var ottlaKeys = []Key{
	{Name: "ottla.cluster.id", Type: String, Importance: Low, State: Honoured,
		Doc: "Cluster id given to an unformatted data directory, 22 characters; drawn at random when unset."},
	{Name: "ottla.console.listener", Type: String, Default: to("127.0.0.1:9644"), Rule: hostPort{}, Importance: Medium, State: Honoured,
		Doc: "Address host:port of metrics, health and console; off when empty."},
	{Name: "ottla.frame.timeout.ms", Type: Int, Default: to("10000"), Rule: atLeast(1), Importance: Low, State: Honoured,
		Doc: "Time without a byte after which a half received request closes its connection, in milliseconds."},
	{Name: "ottla.log.flush.background.ms", Type: Long, Default: to("1000"), Rule: atLeast(0), Importance: Medium, State: Honoured,
		Doc: "Longest time for which appended records wait for the background flush to disk, in milliseconds; 0 leaves it to the system."},
	{Name: "ottla.log.scrub.bytes.per.second", Type: Long, Default: to("10485760"), Rule: atLeast(0), Importance: Low, State: Honoured,
		Doc: "Bytes that each log directory's cold segments are read with a second, once a week, to find what rots on the disk; 0 leaves them alone."},
	{Name: "ottla.max.producer.ids", Type: Long, Default: to("0"), Rule: atLeast(0), Importance: Low, State: Honoured,
		Doc: "Most idempotent producers that this node remembers, once for each partition they wrote to. Beyond it those that have written " +
			"nothing for longest are forgotten, as after producer.id.expiration.ms; 0 is as many as a sixteenth of ottla.memory.limit holds."},
	{Name: "ottla.memory.limit", Type: Long, Default: to("0"), Rule: atLeast(0), Importance: Medium, State: Honoured,
		Doc: "Memory that this process may use, in bytes; 0 is what the machine or the container allows."},
	{Name: "ottla.metrics.max.series", Type: Int, Default: to("10000"), Rule: atLeast(0), Importance: Low, State: Honoured,
		Doc: "Most series that labels of groups may make; beyond it they are summed up as other."},
	{Name: "ottla.produce.max.decompressed.bytes", Type: Long, Default: to("1073741824"), Rule: atLeast(1), Importance: Low, State: Honoured,
		Doc: "Largest size that a produced batch may have after decompression, in bytes; larger ones are too large."},
}
