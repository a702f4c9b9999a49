// Checks a broker with @platformatic/kafka: prints PASS or FAIL, the check's name and why, a line each.
import { Admin, Consumer, FetchIsolationLevels, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { fresh, parts, run, same, sleep, txnId, until, words } from './checks.mjs'

const base = { clientId: 'compat', bootstrapBrokers: process.argv[2].split(','), timeout: 30000, retries: 10, retryDelay: 500 }

async function newTopic () {
  const topic = fresh('pl')
  const admin = new Admin(base)
  await admin.createTopics({ topics: [topic], partitions: parts, replicas: 3 })
  await until('leaders', async () => {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true }).catch(() => ({ topics: new Map() }))
    return topics.get(topic)?.partitions.length === parts && topics.get(topic).partitions.every(p => p.leader >= 0)
  })
  await admin.close()
  return topic
}

const messages = (topic, values) => values.map((value, i) => ({ topic, key: 'k' + i, value, partition: i % parts }))

const newProducer = (options = {}) => new Producer({ ...base, serializers: stringSerializers, ...options })

async function sendPlain (topic, values, options = {}, more = {}) {
  const p = newProducer(options)
  await p.send({ messages: messages(topic, values), acks: -1, ...more })
  await p.close()
}

// reader is a member of a group that collects values until it is stopped.
async function reader (groupId, topic, got, options = {}, onMessage = m => m.commit(), isolationLevel = FetchIsolationLevels.READ_COMMITTED) {
  const consumer = new Consumer({ ...base, groupId, isolationLevel, deserializers: stringDeserializers, sessionTimeout: 10000, heartbeatInterval: 500, rebalanceTimeout: 10000 })
  const stream = await consumer.consume({ topics: [topic], autocommit: false, mode: 'committed', fallbackMode: 'earliest', maxWaitTime: 500, ...options })
  const member = { consumer, error: undefined, assigned: () => (consumer.assignments ?? []).find(a => a.topic === topic)?.partitions.length ?? 0 }
  const ended = (async () => {
    for await (const m of stream) {
      got.push(m.value)
      await onMessage(m)
    }
  })().catch(e => { member.error = e })
  member.stop = async () => {
    await consumer.close(true)
    await ended
    if (member.error) throw member.error
  }
  return member
}

// This client delivers what it asked for before its group changed, of partitions that are another member's by then, and goes back to what is
// committed when the change is over: records that come meanwhile are read twice. It asks for half a second.
const settled = () => sleep(1500)

async function readAll (topic, want, options = {}, isolationLevel) {
  const got = []
  const m = await reader(fresh('all'), topic, got, options, undefined, isolationLevel)
  try {
    await until('all records', () => got.length >= want.length)
    await sleep(1000)
  } finally { await m.stop() }
  same(got, want)
}

async function transaction (p, topic, values, commit) {
  const t = await p.beginTransaction()
  await t.send({ messages: messages(topic, values) })
  await (commit ? t.commit() : t.abort())
}

const transactional = () => newProducer({ idempotent: true, transactionalId: txnId() })

await run({
  async 'produce-consume' () {
    for (const compression of ['none', 'gzip']) { // what needs no further packages
      const topic = await newTopic()
      await sendPlain(topic, words('p', 2000), {}, { compression })
      await readAll(topic, words('p', 2000))
    }
  },
  async idempotent () {
    const topic = await newTopic()
    await sendPlain(topic, words('i', 5000), { idempotent: true })
    await readAll(topic, words('i', 5000))
  },
  async 'subscribe-commit-resume' () {
    const [topic, group, got] = [await newTopic(), fresh('g'), []]
    for (const [prefix, n, sum] of [['a', 300, 300], ['b', 90, 390]]) {
      await sendPlain(topic, words(prefix, n))
      const m = await reader(group, topic, got)
      await until('records', () => got.length >= sum)
      await sleep(500)
      await m.stop()
    }
    same(got, [...words('a', 300), ...words('b', 90)])
  },
  async 'two-members' () {
    const [topic, group, got] = [await newTopic(), fresh('g'), []]
    const a = await reader(group, topic, got)
    await until('one member', () => a.assigned() === parts)
    const b = await reader(group, topic, got)
    await until('two members', () => b.assigned() > 0 && a.assigned() + b.assigned() === parts)
    await settled()
    await sendPlain(topic, words('a', 90))
    await until('records of two', () => got.length >= 90)
    await sleep(300)
    await b.stop()
    await until('the member that stays', () => a.assigned() === parts)
    await settled()
    await sendPlain(topic, words('b', 90))
    await until('records of the member that stays', () => got.length >= 180)
    await a.stop()
    same(got, [...words('a', 90), ...words('b', 90)])
  },
  async 'txn-commit' () {
    const [topic, want, p] = [await newTopic(), [], transactional()]
    for (const turn of [0, 1, 2, 3, 4]) {
      await transaction(p, topic, words(`c${turn}-`, 100), true)
      want.push(...words(`c${turn}-`, 100))
    }
    await p.close()
    await readAll(topic, want)
  },
  async 'txn-abort' () {
    const [topic, p] = [await newTopic(), transactional()]
    for (const turn of [0, 1, 2, 3]) await transaction(p, topic, words(`a${turn}-`, 100), turn % 2 === 1)
    await p.close()
    await readAll(topic, [...words('a1-', 100), ...words('a3-', 100)])
    await readAll(topic, [0, 1, 2, 3].flatMap(turn => words(`a${turn}-`, 100)), {}, FetchIsolationLevels.READ_UNCOMMITTED)
  },
  async 'txn-offsets' () {
    const [source, sink, group, got, last] = [await newTopic(), await newTopic(), fresh('g'), [], new Map()]
    await sendPlain(source, words('x', 30))
    const m = await reader(group, source, got, {}, message => { last.set(message.partition, message) })
    await until('records', () => got.length === 30)
    const p = transactional()
    const t = await p.beginTransaction()
    await t.addConsumer(m.consumer)
    await t.send({ messages: messages(sink, got) })
    for (const message of last.values()) await t.addOffset(message)
    await t.commit()
    await p.close()
    await m.stop()
    await readAll(sink, words('x', 30))
    await sendPlain(source, words('y', 30))
    const more = []
    const n = await reader(group, source, more)
    await until('records after the commit', () => more.length >= 30)
    await sleep(500)
    await n.stop()
    same(more, words('y', 30))
  },
  async admin () {
    const [topic, group, got, admin] = [await newTopic(), fresh('g'), [], new Admin(base)]
    await sendPlain(topic, words('l', 3))
    const m = await reader(group, topic, got)
    await until('records', () => got.length === 3)
    if (!(await admin.listGroups()).has(group)) throw new Error('the group is not listed')
    same([(await admin.describeGroups({ groups: [group] })).get(group).state.toUpperCase()], ['STABLE'])
    await m.stop()
    await admin.deleteGroups({ groups: [group] })
    await admin.deleteTopics({ topics: [topic] })
    await admin.close()
  },
})
