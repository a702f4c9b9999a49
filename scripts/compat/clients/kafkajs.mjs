// Checks a broker with kafkajs: prints PASS or FAIL, the check's name and why, a line each.
import kafkajs from 'kafkajs'
import { fresh, parts, run, same, sleep, txnId, until, words } from './checks.mjs'

const { Kafka, logLevel } = kafkajs
const toStderr = () => ({ namespace, label, log }) => console.error(label, namespace, log.message, log.error ?? '')
const kafka = new Kafka({ clientId: 'compat', brokers: process.argv[2].split(','), logLevel: logLevel.ERROR, logCreator: toStderr })

async function newTopic () {
  const topic = fresh('js')
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: parts, replicationFactor: 3 }] })
  await admin.disconnect()
  await sleep(500) // other brokers learn of it a moment later
  return topic
}

const messages = values => values.map((value, i) => ({ value, partition: i % parts }))

async function sendPlain (topic, values, options = {}, more = {}) {
  const p = kafka.producer(options)
  await p.connect()
  await p.send({ topic, messages: messages(values), ...more })
  await p.disconnect()
}

// reader is a member of a group that collects values until it is stopped.
async function reader (groupId, topic, got, options = {}) {
  const c = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, rebalanceTimeout: 10000, ...options })
  await c.connect()
  await c.subscribe({ topic, fromBeginning: true })
  const member = { assigned: 0, stop: () => c.disconnect() }
  c.on(c.events.GROUP_JOIN, e => { member.assigned = (e.payload.memberAssignment[topic] ?? []).length })
  await c.run({ autoCommitThreshold: 1, eachMessage: async ({ message }) => { got.push(message.value.toString()) } })
  return member
}

async function readAll (topic, want, options = {}) {
  const got = []
  const m = await reader(fresh('all'), topic, got, options)
  try {
    await until('all records', () => got.length >= want.length)
    await sleep(1000)
  } finally { await m.stop() }
  same(got, want)
}

async function transaction (p, topic, values, commit) {
  const t = await p.transaction()
  await t.send({ topic, messages: messages(values) })
  await (commit ? t.commit() : t.abort())
}

const transactional = async id => {
  const p = kafka.producer({ transactionalId: id, maxInFlightRequests: 1, idempotent: true })
  await p.connect()
  return p
}

await run({
  async 'produce-consume' () {
    for (const compression of [0, 1]) { // none and gzip are built in
      const topic = await newTopic()
      await sendPlain(topic, words('p', 2000), {}, { compression })
      await readAll(topic, words('p', 2000))
    }
  },
  async idempotent () {
    const topic = await newTopic()
    await sendPlain(topic, words('i', 5000), { idempotent: true, maxInFlightRequests: 1 })
    await readAll(topic, words('i', 5000))
  },
  async 'subscribe-commit-resume' () {
    const [topic, group, got] = [await newTopic(), fresh('g'), []]
    for (const [prefix, n] of [['a', 300], ['b', 90]]) {
      await sendPlain(topic, words(prefix, n))
      const m = await reader(group, topic, got)
      await until('records', () => got.length >= (prefix === 'a' ? 300 : 390))
      await sleep(500)
      await m.stop()
    }
    same(got, [...words('a', 300), ...words('b', 90)])
  },
  async 'two-members' () {
    const [topic, group, got] = [await newTopic(), fresh('g'), []]
    const a = await reader(group, topic, got)
    await until('one member', () => a.assigned === parts)
    const b = await reader(group, topic, got)
    await until('two members', () => b.assigned > 0 && a.assigned + b.assigned === parts)
    await sendPlain(topic, words('a', 90))
    await until('records of two', () => got.length >= 90)
    await sleep(300)
    await b.stop()
    await until('the member that stays', () => a.assigned === parts)
    await sendPlain(topic, words('b', 90))
    await until('records of the member that stays', () => got.length >= 180)
    await a.stop()
    same(got, [...words('a', 90), ...words('b', 90)])
  },
  async 'txn-commit' () {
    const [topic, want] = [await newTopic(), []]
    const p = await transactional(txnId())
    for (const turn of [0, 1, 2, 3, 4]) {
      await transaction(p, topic, words(`c${turn}-`, 100), true)
      want.push(...words(`c${turn}-`, 100))
    }
    await p.disconnect()
    await readAll(topic, want)
  },
  async 'txn-abort' () {
    const topic = await newTopic()
    const p = await transactional(txnId())
    for (const turn of [0, 1, 2, 3]) await transaction(p, topic, words(`a${turn}-`, 100), turn % 2 === 1)
    await p.disconnect()
    await readAll(topic, [...words('a1-', 100), ...words('a3-', 100)])
    await readAll(topic, [0, 1, 2, 3].flatMap(turn => words(`a${turn}-`, 100)), { readUncommitted: true })
  },
  async 'txn-offsets' () {
    const [topic, group] = [await newTopic(), fresh('g')]
    const admin = kafka.admin()
    await admin.connect()
    const p = await transactional(txnId())
    for (const commit of [false, true]) {
      const t = await p.transaction()
      await t.send({ topic, messages: messages(words('x', 9)) })
      await t.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: '3' }] }] })
      await (commit ? t.commit() : t.abort())
      let at
      await until('the offset', async () => { // it may be pending a moment after the end
        at = (await admin.fetchOffsets({ groupId: group, topics: [topic] }))[0].partitions.find(q => q.partition === 0)?.offset
        return at === (commit ? '3' : '-1')
      })
    }
    await p.disconnect()
    await admin.disconnect()
    await readAll(topic, words('x', 9))
  },
  async admin () {
    const [topic, group, got] = [await newTopic(), fresh('g'), []]
    const admin = kafka.admin()
    await admin.connect()
    await admin.createPartitions({ topicPartitions: [{ topic, count: parts + 1 }] })
    await until('partitions', async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === parts + 1)
    await sendPlain(topic, words('l', 3))
    const m = await reader(group, topic, got)
    await until('records', () => got.length === 3)
    if (!(await admin.listGroups()).groups.some(g => g.groupId === group)) throw new Error('the group is not listed')
    same((await admin.describeGroups([group])).groups.map(g => g.state), ['Stable'])
    await m.stop()
    await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '0' }] })
    await admin.deleteGroups([group])
    await admin.deleteTopics({ topics: [topic] })
    await admin.disconnect()
  },
})
