package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"ottla/internal/config"
	"ottla/internal/protocol"
)

// dial connects to a broker and returns a client with the flags' settings; extra options win. The
// caller closes it.
func (a *app) dial(ctx context.Context, extra ...kgo.Opt) (*kgo.Client, error) {
	props, err := a.clientProperties()
	if err != nil {
		return nil, err
	}
	opts, err := a.clientOptions(props)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, usagef("client: %s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		if errors.Is(err, context.Canceled) {
			return nil, err
		}
		return nil, &noBrokerError{props["bootstrap.servers"], err}
	}
	return client, nil
}

// admin is dial with kadm on top. Closing the admin client closes both.
func (a *app) admin(ctx context.Context) (*kadm.Client, error) {
	client, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	adm := kadm.NewClient(client)
	adm.SetTimeoutMillis(int32(min(a.timeout.Milliseconds(), 1<<31-1)))
	return adm, nil
}

// clientProperties collects Java client properties: defaults < --command-config < environment < -X < -b.
func (a *app) clientProperties() (map[string]string, error) {
	props := map[string]string{"bootstrap.servers": defaultBootstrap, "client.id": "ottla-cli"}
	if a.commandConfig != "" {
		b, err := os.ReadFile(a.commandConfig)
		if err != nil {
			return nil, usagef("--command-config: %s", err)
		}
		file, err := config.ParseProperties(b)
		if err != nil {
			return nil, usagef("--command-config %s: %s", a.commandConfig, err)
		}
		maps.Copy(props, file)
	}
	if server := a.env("OTTLA_BOOTSTRAP_SERVER"); server != "" {
		props["bootstrap.servers"] = server
	}
	for _, kv := range a.properties {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, usagef("-X %s: write key=value", kv)
		}
		props[key] = value
	}
	if a.bootstrap != "" {
		props["bootstrap.servers"] = a.bootstrap
	}
	return props, nil
}

// clientOptions turns Java client properties into options of kgo.
func (a *app) clientOptions(props map[string]string) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(strings.ReplaceAll(props["bootstrap.servers"], " ", ""), ",")...),
		kgo.DialTimeout(min(a.timeout, 5*time.Second)),
		kgo.RetryTimeout(a.timeout),
		kgo.SoftwareNameAndVersion(protocol.OwnSoftware, version()), kgo.MaxVersions(apiVersions()),
	}
	if a.verbose {
		opts = append(opts, kgo.WithLogger(kgo.BasicLogger(a.err, kgo.LogLevelDebug, nil)))
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		set, known := clientKeys[name]
		switch {
		case !known:
			a.warnUnknown(name)
		case set != nil:
			opt, err := set(props[name])
			if err != nil {
				return nil, usagef("client property %s=%s: %s", name, props[name], err)
			}
			if opt != nil {
				opts = append(opts, opt)
			}
		}
	}
	secured, err := security(props)
	return append(opts, secured...), err
}

// apiVersions are those that kgo speaks by itself, and our own API, which it then asks of brokers that advertise it.
func apiVersions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(protocol.DescribeLagKey, new(protocol.DescribeLagRequest).MaxVersion())
	return v
}

func (a *app) warnUnknown(name string) {
	if near := config.Suggest(name, slices.Collect(maps.Keys(clientKeys))); near != "" {
		a.note("client property %s is unknown; did you mean %s?", name, near)
		return
	}
	a.note("client property %s is unknown and ignored", name)
}

// clientKeys are the Java client properties that mean something here. Those without a function are
// read together elsewhere.
var clientKeys = map[string]func(string) (kgo.Opt, error){
	"bootstrap.servers": nil, "security.protocol": nil, "sasl.mechanism": nil, "sasl.jaas.config": nil,
	"ssl.truststore.location": nil, "ssl.truststore.certificates": nil, "ssl.truststore.type": nil,
	"ssl.keystore.location": nil, "ssl.keystore.type": nil, "ssl.endpoint.identification.algorithm": nil,
	"transactional.id": nil,
	"client.id":        func(s string) (kgo.Opt, error) { return kgo.ClientID(s), nil },
	"client.rack":      func(s string) (kgo.Opt, error) { return kgo.Rack(s), nil },
	"acks":             acks,
	"enable.idempotence": func(s string) (kgo.Opt, error) {
		if s == "false" {
			return kgo.DisableIdempotentWrite(), nil
		}
		return nil, nil // idempotence is the default
	},
	"batch.size":       whole(func(n int32) kgo.Opt { return kgo.ProducerBatchMaxBytes(n) }),
	"max.request.size": whole(func(n int32) kgo.Opt { return kgo.BrokerMaxWriteBytes(max(n, 1<<20)) }),
	"buffer.memory":    whole(func(n int32) kgo.Opt { return kgo.MaxBufferedBytes(int(n)) }),
	"compression.type": compression,
	"linger.ms":        milliseconds(kgo.ProducerLinger),
	"delivery.timeout.ms": milliseconds(func(d time.Duration) kgo.ProducerOpt {
		return kgo.RecordDeliveryTimeout(d)
	}),
	"max.in.flight.requests.per.connection": whole(func(n int32) kgo.Opt { return kgo.MaxProduceRequestsInflightPerBroker(int(n)) }),
	"retries":                               whole(func(n int32) kgo.Opt { return kgo.RecordRetries(int(n)) }),
	"request.timeout.ms":                    milliseconds(func(d time.Duration) kgo.Opt { return kgo.ProduceRequestTimeout(d) }),
	"fetch.min.bytes":                       whole(func(n int32) kgo.Opt { return kgo.FetchMinBytes(n) }),
	"fetch.max.bytes":                       whole(func(n int32) kgo.Opt { return kgo.FetchMaxBytes(n) }),
	"max.partition.fetch.bytes":             whole(func(n int32) kgo.Opt { return kgo.FetchMaxPartitionBytes(n) }),
	"fetch.max.wait.ms":                     milliseconds(kgo.FetchMaxWait),
	"metadata.max.age.ms":                   milliseconds(kgo.MetadataMaxAge),
	"connections.max.idle.ms":               milliseconds(kgo.ConnIdleTimeout),
	"isolation.level": func(s string) (kgo.Opt, error) {
		switch s {
		case "read_committed":
			return kgo.FetchIsolationLevel(kgo.ReadCommitted()), nil
		case "read_uncommitted":
			return kgo.FetchIsolationLevel(kgo.ReadUncommitted()), nil
		}
		return nil, errors.New("choose read_committed or read_uncommitted")
	},
}

func whole[O kgo.Opt](opt func(int32) O) func(string) (kgo.Opt, error) {
	return func(s string) (kgo.Opt, error) {
		n, err := config.ParseSize(s)
		if err != nil || n > 1<<31-1 {
			return nil, errors.New("write a number")
		}
		return opt(int32(n)), nil
	}
}

func milliseconds[O kgo.Opt](opt func(time.Duration) O) func(string) (kgo.Opt, error) {
	return func(s string) (kgo.Opt, error) {
		ms, err := config.ParseMilliseconds(s)
		if err != nil {
			return nil, errors.New("write a time in milliseconds, or 5s")
		}
		return opt(time.Duration(ms) * time.Millisecond), nil
	}
}

func acks(s string) (kgo.Opt, error) {
	switch s {
	case "all", "-1":
		return kgo.RequiredAcks(kgo.AllISRAcks()), nil
	case "1":
		return kgo.RequiredAcks(kgo.LeaderAck()), nil
	case "0":
		return kgo.RequiredAcks(kgo.NoAck()), nil
	}
	return nil, errors.New("choose all, 1 or 0")
}

func compression(s string) (kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[s]
	if !ok {
		return nil, errors.New("choose none, gzip, snappy, lz4 or zstd")
	}
	return kgo.ProducerBatchCompression(codec), nil
}

// security reads security.protocol and what belongs to it.
func security(props map[string]string) ([]kgo.Opt, error) {
	protocol := strings.ToUpper(props["security.protocol"])
	var opts []kgo.Opt
	switch protocol {
	case "", "PLAINTEXT", "SASL_PLAINTEXT":
	case "SSL", "SASL_SSL":
		c, err := tlsConfig(props)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(c))
	default:
		return nil, usagef("client property security.protocol=%s: choose PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol)
	}
	if strings.HasPrefix(protocol, "SASL_") {
		m, err := mechanism(props["sasl.mechanism"], props["sasl.jaas.config"])
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	return opts, nil
}

// tlsConfig reads trust and key from PEM; Java's own formats are told apart by name.
func tlsConfig(props map[string]string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if name, ok := props["ssl.endpoint.identification.algorithm"]; ok && name == "" {
		c.InsecureSkipVerify = true // what the empty algorithm asks for
	}
	pem := []byte(props["ssl.truststore.certificates"])
	if path := props["ssl.truststore.location"]; path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, usagef("client property ssl.truststore.location: %s", err)
		}
		pem = append(pem, b...)
	}
	if len(pem) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("client property ssl.truststore.location holds no PEM certificate (convert: keytool -exportcert -rfc)")
		}
	}
	if path := props["ssl.keystore.location"]; path != "" {
		pair, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return nil, usagef("client property ssl.keystore.location: %s (PEM with chain and key)", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

var jaasOption = regexp.MustCompile(`(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"`)

// mechanism reads a JAAS line such as
//
//	org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";
func mechanism(name, jaas string) (sasl.Mechanism, error) {
	options := map[string]string{}
	for _, m := range jaasOption.FindAllStringSubmatch(jaas, -1) {
		options[m[1]] = strings.ReplaceAll(m[2], `\"`, `"`)
	}
	user, password := options["username"], options["password"]
	if user == "" {
		return nil, usagef(`client property sasl.jaas.config has no username="…"`)
	}
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, usagef("client property sasl.mechanism=%s: choose PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", name)
}

// completeTopics gives the names of topics to the shell.
func (a *app) completeTopics(ctx context.Context, prefix string) []string {
	a.timeout = time.Second
	adm, err := a.admin(ctx)
	if err != nil {
		return nil
	}
	defer adm.Close()
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(topics.Names(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// completeBrokers gives node ids to the shell.
func (a *app) completeBrokers(ctx context.Context, _ string) []string {
	a.timeout = time.Second
	adm, err := a.admin(ctx)
	if err != nil {
		return nil
	}
	defer adm.Close()
	brokers, err := adm.ListBrokers(ctx)
	if err != nil {
		return nil
	}
	var out []string
	for _, id := range brokers.NodeIDs() {
		out = append(out, strconv.Itoa(int(id)))
	}
	return out
}
