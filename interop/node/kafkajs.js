// kafkajs against a broker: an idempotent and a compressing producer, a group, and the administration client.
//
//   kafkajs.js ADDRESS PREFIX    prints a line for each thing that worked; ends with 1 at the first that did not
const { createRequire } = require('module')
const { join } = require('path')
const { Kafka, CompressionTypes, logLevel } = createRequire(join(process.env.NODE_PATH || '.', 'x'))('kafkajs')

const [address, topic] = process.argv.slice(2)
const group = `${topic}-group`
const COUNT = 200
const DEADLINE_MS = 60_000

const expect = (what, ok, got) => {
  if (!ok) throw new Error(`${what}; got ${JSON.stringify(got)}`)
  console.log('ok', what)
}

const produce = async kafka => {
  const message = (n, name) => ({ key: `key-${n % 5}`, value: `${name}-${n}`, headers: { from: name } })
  for (const [name, options, compression] of [
    ['idempotent', { idempotent: true, maxInFlightRequests: 1 }, CompressionTypes.None],
    ['gzip', {}, CompressionTypes.GZIP],
  ]) {
    const producer = kafka.producer(options)
    await producer.connect()
    const messages = Array.from({ length: COUNT }, (_, n) => message(n, name))
    await producer.send({ topic, acks: -1, compression, messages })
    await producer.disconnect()
    console.log('ok produced:', name)
  }
}

const consume = async kafka => {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10_000 })
  const seen = new Map()
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        seen.set(message.value.toString(), message.headers.from.toString())
        if (seen.size === 2 * COUNT) resolve()
      },
    })
  })
  await consumer.stop()
  await consumer.disconnect()
  expect('every message was read, with its header', seen.get('gzip-7') === 'gzip', seen.get('gzip-7'))
}

const administer = async admin => {
  const ends = await admin.fetchTopicOffsets(topic)
  expect('the ends of the log are known', ends.reduce((sum, end) => sum + Number(end.high), 0) === 2 * COUNT, ends)
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  expect('the group has committed all of it', partitions.reduce((sum, p) => sum + Number(p.offset), 0) === 2 * COUNT, partitions)
  const { groups } = await admin.describeGroups([group])
  expect('the group is empty', groups[0].state === 'Empty', groups[0].state)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  let known = 0
  for (let attempt = 0; attempt < 50 && known !== 5; attempt++) { // of a cluster, another broker may be asked
    known = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
    if (known !== 5) await new Promise(resolve => setTimeout(resolve, 100))
  }
  expect('there are more partitions', known === 5, known)
  await admin.deleteGroups([group])
  await admin.deleteTopics({ topics: [topic] })
  console.log('ok group and topic are deleted')
}

const main = async () => {
  const kafka = new Kafka({ clientId: 'interop', brokers: [address], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  expect('the topic is created', await admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true }))
  await produce(kafka)
  await consume(kafka)
  await administer(admin)
  await admin.disconnect()
}

setTimeout(() => { console.log('FAILED: it took too long'); process.exit(1) }, DEADLINE_MS).unref()
main().then(() => process.exit(0), failure => { console.log(`FAILED ${failure.stack}`); process.exit(1) })
