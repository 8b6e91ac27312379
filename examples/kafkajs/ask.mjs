// Defines a data set, sends a batch, asks a query and prints the answer. Node 18 or newer:
//
//   npm ci && node ask.mjs 127.0.0.1:9092

import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import Ajv from 'ajv/dist/2020.js'
import { Kafka, Partitioners, logLevel } from 'kafkajs'

const [brokers = '127.0.0.1:9092', prefix = 'stream-dp.'] = process.argv.slice(2)
const dataset = 'rides'

// The worker checks what it gets, too; but here a mistake has a stack trace.
const ajv = new Ajv({ strict: false })
function schema(name) {
  const file = new URL(`../../docs/contracts/${name}.schema.json`, import.meta.url)
  return ajv.compile(JSON.parse(readFileSync(file)))
}
const checks = { datasets: schema('definition'), batches: schema('batch'), queries: schema('query') }

const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR })
const admin = kafka.admin()
// A record belongs on the partition where Java's murmur2 puts its key. DefaultPartitioner does that since
// kafkajs 2; LegacyPartitioner does not, and the worker would reject the record.
const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
// Each copy of this program wants all replies, so each is a group of its own. A short wait, since what comes in
// while it seeks below is only looked at after the wait that is under way.
const consumer = kafka.consumer({ groupId: `rides-${randomUUID()}`, maxWaitTimeInMs: 200 })

const heard = []

// Listens from where the topics end now. `fromBeginning: false` alone would not do: what is new is then decided
// when the group first reads, and that may be after the reply was written.
async function listen() {
  const topics = ['events', 'answers', 'rejected'].map(role => prefix + role)
  const ends = await Promise.all(topics.map(topic => admin.fetchTopicOffsets(topic)))
  await consumer.subscribe({ topics })
  await consumer.run({ eachMessage: async ({ message }) => { heard.push(JSON.parse(message.value)) } })
  for (const [i, topic] of topics.entries()) {
    for (const { partition, offset } of ends[i]) consumer.seek({ topic, partition, offset })
  }
}

// Sends one request and waits for its reply: topics have no order between them, so rows that are sent before the
// data set was accepted may come too early. After a time-out send the same again: a known id counts once.
async function request(role, message, isReply) {
  const value = { version: 1, dataset, ...message }
  if (!checks[role](value)) throw new Error(ajv.errorsText(checks[role].errors, { dataVar: role }))
  const topic = prefix + role
  const [{ partition, baseOffset }] = await producer.send({
    topic,
    messages: [{ key: dataset, value: JSON.stringify(value) }],
  })
  for (const end = Date.now() + 30_000; Date.now() < end; await sleep(50)) {
    const reply = heard.find(reply => reply.dataset === dataset && isReply(reply))
    if (reply) return reply
    // What no data set could take is named by its place.
    const rejected = heard.find(reply =>
      reply.topic === topic && reply.partition === partition && reply.offset === Number(baseOffset))
    if (rejected) throw new Error(rejected.reason.message)
  }
  throw new Error(`no reply on ${topic}: does a worker run?`)
}

const n = 20_000 // rides that never took place
const batch = {
  batch_id: '2026-11-21',
  columns: {
    bike: Array.from({ length: n }, (_, i) => ['city', 'cargo', 'city', 'electric'][i % 4]),
    minutes: Array.from({ length: n }, (_, i) => (i % 10 === 0 ? null : i % 90)),
  },
}

try {
  await Promise.all([admin.connect(), producer.connect(), consumer.connect()])
  await listen()

  await request('datasets', {
    attributes: [
      { name: 'bike', type: 'category', values: ['city', 'cargo', 'electric'] },
      { name: 'minutes', type: 'number', edges: [15, 30, 60], integer: true, missing: true },
    ],
    privacy: { epsilon: 1, delta: 1e-9 },
    accuracy: { error: 0.02, failure_probability: 0.01 },
    phase: { min_rows: n },
  }, reply => reply.event === 'dataset_accepted')

  const event = await request('batches', batch, reply => reply.batch_id === batch.batch_id && reply.event)
  if (event.reason) throw new Error(event.reason.message)
  console.log(`${event.rows} rows, phase ${event.phase} is open`)

  const query = {
    analyst: 'ann',
    query_id: randomUUID(), // the answer under an id never changes: a new query needs a new id
    where: { all: [{ attribute: 'bike', eq: 'city' }, { attribute: 'minutes', ge: 30 }] },
  }
  const answer = await request('queries', query, reply => reply.query_id === query.query_id && reply.status)
  console.log(JSON.stringify(answer))
} finally {
  await Promise.all([consumer.disconnect(), producer.disconnect(), admin.disconnect()])
}
