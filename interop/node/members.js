// A driver of kafkajs consumers: see ../groups_test.go for what it reads and prints. kafkajs says nothing before a partition
// goes, so each batch is committed.
const readline = require('readline')
const { Kafka, PartitionAssigners, logLevel } = require('kafkajs')

// The name is all that keeps kafkajs from sharing a group with other clients.
const roundrobin = context => ({ ...PartitionAssigners.roundRobin(context), name: 'roundrobin' })

async function start(name, bootstrap, groupId, topic) {
  const say = what => console.log(`${name} ${what}`)
  const kafka = new Kafka({ clientId: name, brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const consumer = kafka.consumer({ groupId, partitionAssigners: [roundrobin], heartbeatInterval: 300, sessionTimeout: 45000, maxWaitTimeInMs: 100 })
  consumer.on(consumer.events.GROUP_JOIN, e => say(`owns ${(e.payload.memberAssignment[topic] || []).join(' ')}`))
  consumer.on(consumer.events.CRASH, e => say(e.payload.restart ? `crashed ${e.payload.error}` : `died ${e.payload.error}`))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      for (const m of batch.messages) say(`read ${batch.partition} ${m.offset} ${m.value}`)
      try {
        await consumer.commitOffsets([{ topic, partition: batch.partition, offset: String(BigInt(batch.lastOffset()) + 1n) }])
      } catch (e) {
        say(`failed ${batch.messages.length}`)
        throw e
      }
    },
  })
  return async () => {
    await consumer.disconnect()
    say('left')
  }
}

async function main() {
  const running = {}
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, name, bootstrap, group, topic] = line.split(' ')
    if (verb === 'start') {
      running[name] = start(name, bootstrap, group, topic)
      running[name].catch(e => console.log(`${name} died ${e}`))
    } else {
      const stop = running[name]
      delete running[name]
      stop.then(leave => leave())
    }
  }
  for (const stop of Object.values(running)) await (await stop)()
}

main().catch(err => { console.error(err); process.exit(1) })
