package config

// clientMetricsKeys are the keys of a client metrics subscription. Source: ClientMetricsConfigs, KIP-714.
var clientMetricsKeys = []Key{
	{Name: "interval.ms", Type: Int, Default: to("300000"), Importance: Medium, State: NotYet, Why: noTelemetry,
		Doc: "Time between two pushes of a client's metrics, in milliseconds."},
	{Name: "match", Type: List, Default: to(""), Rule: distinct(), Importance: Medium, State: NotYet, Why: noTelemetry,
		Doc: "Patterns that select the clients, each as name=regex."},
	{Name: "metrics", Type: List, Default: to(""), Rule: distinct(), Importance: Medium, State: NotYet, Why: noTelemetry,
		Doc: "Prefixes of the client metrics that are asked for; * is all of them."},
}
