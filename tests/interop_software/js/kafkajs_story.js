// Prints "ok NAME" or "failed NAME: reason" for each case.
const path = require('path')
const { Kafka, CompressionTypes, logLevel } = require(path.join(process.argv[3], 'node_modules', 'kafkajs'))

const kafka = new Kafka({ clientId: 'story', brokers: [process.argv[2]], logLevel: logLevel.ERROR })
const topic = 'kafkajs-orders'
const admin = kafka.admin()

async function check(name, run) {
  try {
    await run()
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`failed ${name}: ${error.stack}`)
  }
}

function equal(found, wanted) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    throw new Error(`found ${JSON.stringify(found).slice(0, 500)}, wanted ${JSON.stringify(wanted).slice(0, 500)}`)
  }
}

async function main() {
  await admin.connect()
  await check('admin', async () => {
    await admin.createTopics({
      topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'compression.type', value: 'gzip' }] }],
    })
    const described = await admin.fetchTopicMetadata({ topics: [topic] })
    equal(described.topics[0].partitions.length, 2)
    await admin.createAcls({ acl: [{ resourceType: 2, resourceName: topic, resourcePatternType: 3, principal: 'User:a', host: '*', operation: 3, permissionType: 3 }] })
      .then(() => { throw new Error('an ACL was taken') }, error => equal(error.type, 'SECURITY_DISABLED'))
  })
  await check('idempotent_producer', async () => {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (let batch = 0; batch < 20; batch++) {
      const messages = [...Array(50).keys()].map(n => ({ key: `k${n % 7}`, value: `${batch}-${n}`, partition: n % 2 }))
      await producer.send({ topic, acks: -1, compression: CompressionTypes.None, messages })
    }
    await producer.disconnect()
    equal((await admin.fetchTopicOffsets(topic)).map(each => each.offset), ['500', '500'])
  })
  await check('consumer_group', async () => {
    const consumer = kafka.consumer({ groupId: 'kafkajs-readers', sessionTimeout: 10000 })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    const seen = { 0: [], 1: [] }
    await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error('no records within 60 s')), 60000).unref()
      consumer.run({
        eachMessage: async ({ partition, message }) => {
          seen[partition].push(message.value.toString())
          if (seen[0].length + seen[1].length === 1000) resolve()
        },
      })
    })
    await consumer.disconnect()
    for (const partition of [0, 1]) {
      const wanted = []
      for (let batch = 0; batch < 20; batch++) for (let n = partition; n < 50; n += 2) wanted.push(`${batch}-${n}`)
      equal(seen[partition], wanted)
    }
    const offsets = await admin.fetchOffsets({ groupId: 'kafkajs-readers', topics: [topic] })
    equal(offsets[0].partitions.map(each => each.offset).sort(), ['500', '500'])
  })
  await check('transactions', async () => {
    const producer = kafka.producer({ transactionalId: 'kafkajs-writer', maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    for (let number = 0; number < 4; number++) {
      const transaction = await producer.transaction()
      await transaction.send({ topic: 'kafkajs-payments', messages: [{ value: `payment ${number}` }] })
      await (number % 2 ? transaction.abort() : transaction.commit())
    }
    await producer.disconnect()
    const consumer = kafka.consumer({ groupId: 'kafkajs-auditors' })
    await consumer.connect()
    await consumer.subscribe({ topics: ['kafkajs-payments'], fromBeginning: true })
    const seen = []
    await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error(`${seen.length} records within 60 s`)), 60000).unref()
      consumer.run({ eachMessage: async ({ message }) => { if (seen.push(message.value.toString()) === 2) resolve() } })
    })
    await consumer.disconnect()
    equal(seen, ['payment 0', 'payment 2'])
  })
  await admin.disconnect()
}

main().catch(error => { console.log(`failed story: ${error.stack}`); process.exit(1) })
