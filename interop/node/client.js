// kafkajs, driven by the interop test (see ../interop_test.go for the record format, and ../programs_test.go for how). A line is
//
//	produce BOOTSTRAP TOPIC CODEC PREFIX COUNT
//	consume BOOTSTRAP GROUP COUNT TOPIC…   reads COUNT records, each printed behind its topic, commits each batch and leaves the group
//
// Its own codec is gzip; snappy and lz4 are plug-ins of its users.
const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new (require('kafkajs-lz4'))().codec

const connect = bootstrap => new Kafka({ clientId: 'interop', brokers: [bootstrap], logLevel: logLevel.NOTHING })

async function produce(bootstrap, topic, codec, prefix, count) {
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 }[codec]
  const producer = connect(bootstrap).producer()
  await producer.connect()
  const messages = []
  for (let i = 0; i < Number(count); i++) {
    messages.push({ partition: i % 3, timestamp: String(1700000000000 + i), key: `k${i}`, value: `${prefix}-${i}`, headers: { h: prefix } })
  }
  await producer.send({ topic, compression, acks: -1, messages })
  await producer.disconnect()
}

async function consume(bootstrap, groupId, count, ...topics) {
  const consumer = connect(bootstrap).consumer({ groupId, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  let left = Number(count)
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, e => reject(e.payload.error))
    consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        if (left <= 0) return
        for (const m of batch.messages) {
          const headers = Object.entries(m.headers).map(([k, v]) => ` ${k}=${v}`).join('')
          console.log(`${batch.topic} ${batch.partition} ${m.offset} ${m.timestamp} ${m.key} ${m.value}${headers}`)
        }
        await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: String(BigInt(batch.lastOffset()) + 1n) }])
        left -= batch.messages.length
        if (left <= 0) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...args] = line.split(' ')
    try {
      await { produce, consume }[verb](...args)
      console.log('exit 0')
    } catch (e) {
      console.error(e)
      console.log('exit 1')
    }
  }
}

main()
