// kafkajs, driven by the interop test (see ../interop_test.go for the record format):
// produce.js BOOTSTRAP TOPIC CODEC PREFIX COUNT. Its own codec is gzip; snappy and lz4 are plug-ins of its users.
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new (require('kafkajs-lz4'))().codec

const [bootstrap, topic, codec, prefix, count] = process.argv.slice(2)
const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 }[codec]

async function main() {
  const producer = new Kafka({ clientId: 'interop', brokers: [bootstrap], logLevel: logLevel.NOTHING }).producer()
  await producer.connect()
  const messages = []
  for (let i = 0; i < Number(count); i++) {
    messages.push({ partition: i % 3, timestamp: String(1700000000000 + i), key: `k${i}`, value: `${prefix}-${i}`, headers: { h: prefix } })
  }
  await producer.send({ topic, compression, acks: -1, messages })
  await producer.disconnect()
}

main().catch(err => { console.error(err); process.exit(1) })
