"""Checks a broker with librdkafka through confluent_kafka: prints PASS or FAIL, the check's name and why, a line each.

Usage: confluent.py BOOTSTRAP [CHECK...]"""
import os
import sys
import threading
import time
import uuid

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

ADDR = sys.argv[1]
PARTS = 3


def new_topic(partitions=PARTS):
    name = "py-" + uuid.uuid4().hex[:12]
    admin = AdminClient({"bootstrap.servers": ADDR})  # must live until the answer has come
    for f in admin.create_topics([NewTopic(name, partitions, 3)]).values():
        f.result(30)
    return name


def settings(more):
    return {k.replace("_", "."): v for k, v in more.items()}


def producer(**more):
    return Producer({"bootstrap.servers": ADDR, "linger.ms": 5, **settings(more)})


def consumer(group, isolation="read_committed", **more):
    return Consumer({"bootstrap.servers": ADDR, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                     "check.crcs": True, "isolation.level": isolation, **settings(more)})


def fresh(word):
    return word + "-" + uuid.uuid4().hex[:8]


def txn_id():
    """TXN_PREFIX chooses the commit protocol of brokers that have several."""
    return os.environ.get("TXN_PREFIX", "") + fresh("t")


def send(p, topic, values):
    failed = []
    for i, v in enumerate(values):
        while True:
            try:
                p.produce(topic, v, key="k%d" % i, partition=i % PARTS, on_delivery=lambda e, m: failed.append(e) if e else None)
                break
            except BufferError:
                p.poll(0.1)
        p.poll(0)
    left = p.flush(60)
    if left or failed:
        raise Exception("undelivered: %d left, %s" % (left, failed[:3]))


def early(m):
    """A broker may learn of a new topic a moment after the one that made it."""
    return m.error() and m.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def read(c, n, limit=60, extra=2):
    """Polls until n records came, and a little longer to see one too many."""
    out, until = [], time.time() + limit
    while time.time() < until:
        m = c.poll(0.2)
        if m is None or early(m):
            continue
        if m.error():
            raise KafkaException(m.error())
        out.append(m)
        if len(out) == n:
            until = min(until, time.time() + extra)
    if len(out) != n:
        raise Exception("read %d records, want %d" % (len(out), n))
    return out


def read_all(topic, n, isolation="read_committed", **more):
    c = consumer(fresh("all"), isolation)
    c.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTS)])
    try:
        return sorted(m.value().decode() for m in read(c, n, **more))
    finally:
        c.close()


def same(got, want):
    if got != want:
        raise Exception("got %s, want %s" % (str(got)[:80], str(want)[:80]))


def words(prefix, n):
    return ["%s%05d" % (prefix, i) for i in range(n)]


def produce_consume():
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic, values = new_topic(), words(codec, 2000)
        send(producer(compression_type=codec), topic, values)
        same(read_all(topic, len(values), extra=0.3), values)


def idempotent():
    topic, values = new_topic(), words("i", 20000)
    send(producer(enable_idempotence=True), topic, values)
    same(read_all(topic, len(values)), values)


def offsets_for_times():
    topic = new_topic(1)
    p = producer(enable_idempotence=True)
    for at in (1000, 2000, 3000):
        p.produce(topic, str(at), timestamp=at)
    p.flush(30)
    c = consumer(fresh("times"))
    same([t.offset for t in c.offsets_for_times([TopicPartition(topic, 0, 1500)], 30)], [1])
    same(c.get_watermark_offsets(TopicPartition(topic, 0), 30), (0, 3))
    c.close()


def subscribe_commit_resume():
    topic, group = new_topic(), fresh("g")
    send(producer(enable_idempotence=True), topic, words("a", 900))
    c = consumer(group)
    c.subscribe([topic])
    got = [m.value().decode() for m in read(c, 900)]
    c.commit(asynchronous=False)
    c.close()
    send(producer(enable_idempotence=True), topic, words("b", 300))
    c = consumer(group)
    c.subscribe([topic])
    got += [m.value().decode() for m in read(c, 300)]
    same([t.offset for t in c.committed([TopicPartition(topic, p) for p in range(PARTS)], 30)], [300] * PARTS)
    c.close()
    same(sorted(got), words("a", 900) + words("b", 300))


def two_members(**more):
    """A second member takes some partitions over, gives them back, and nothing is read twice behind a commit."""
    topic, group, lock, got, stop = new_topic(), fresh("g"), threading.Lock(), [], [threading.Event(), threading.Event()]
    assigned, errors = [0, 0], []

    def member(i):
        try:
            c = consumer(group, session_timeout_ms=10000, heartbeat_interval_ms=500, **more)

            def gained(c, parts):
                assigned[i] += len(parts)

            def lost(c, parts):
                assigned[i] = max(0, assigned[i] - len(parts))
            c.subscribe([topic], on_assign=gained, on_revoke=lost)
            while not stop[i].is_set():
                m = c.poll(0.1)
                if m is None or early(m):
                    continue
                if m.error():
                    raise KafkaException(m.error())
                with lock:
                    got.append(m.value().decode())
                c.commit(m, asynchronous=False)
            c.close()
            assigned[i] = 0
        except Exception as e:
            errors.append(e)

    def until(what, cond, limit=60):
        end = time.time() + limit
        while not cond():
            if errors:
                raise errors[0]
            if time.time() > end:
                raise Exception("%s: partitions %s, %d records" % (what, assigned, len(got)))
            time.sleep(0.1)

    threads = [threading.Thread(target=member, args=(i,)) for i in range(2)]
    threads[0].start()
    until("one member", lambda: assigned[0] == PARTS)
    send(producer(enable_idempotence=True), topic, words("a", 90))
    until("records of one member", lambda: len(got) >= 90)
    threads[1].start()
    until("two members", lambda: assigned[1] > 0 and sum(assigned) == PARTS)
    send(producer(enable_idempotence=True), topic, words("b", 90))
    until("records of two members", lambda: len(got) >= 180)
    stop[0].set()
    threads[0].join()
    until("the member that stays", lambda: assigned[1] == PARTS)
    send(producer(enable_idempotence=True), topic, words("c", 90))
    until("records of the member that stays", lambda: len(got) >= 270)
    stop[1].set()
    threads[1].join()
    if errors:
        raise errors[0]
    same(sorted(got), words("a", 90) + words("b", 90) + words("c", 90))


def two_members_cooperative():
    two_members(partition_assignment_strategy="cooperative-sticky")


def static_member():
    """A static member that comes back within its session gets its partitions without a rebalance."""
    topic, group = new_topic(), fresh("g")
    generations = []
    for turn in range(2):
        send(producer(enable_idempotence=True), topic, words("s%d" % turn, 30))
        c = consumer(group, group_instance_id="one")
        c.subscribe([topic])
        read(c, 30)
        c.commit(asynchronous=False)
        generations.append(sorted((t.topic, t.partition) for t in c.assignment()))
        c.close()
    same(generations[0], generations[1])


def txn_commit():
    topic, p = new_topic(), producer(transactional_id=txn_id())
    p.init_transactions(30)
    want = []
    for turn in range(5):
        p.begin_transaction()
        send(p, topic, words("c%d-" % turn, 100))
        p.commit_transaction(30)
        want += words("c%d-" % turn, 100)
    same(read_all(topic, len(want)), want)


def txn_abort():
    topic, p = new_topic(), producer(transactional_id=txn_id())
    p.init_transactions(30)
    for turn, end in enumerate((p.abort_transaction, p.commit_transaction, p.abort_transaction, p.commit_transaction)):
        p.begin_transaction()
        send(p, topic, words("%s%d-" % ("ac"[turn % 2], turn), 100))
        end(30)
    want = words("c1-", 100) + words("c3-", 100)
    same(read_all(topic, 200), want)
    same(read_all(topic, 400, "read_uncommitted"), words("a0-", 100) + words("a2-", 100) + want)


def txn_open_is_invisible():
    topic, p = new_topic(), producer(transactional_id=txn_id())
    p.init_transactions(30)
    p.begin_transaction()
    send(p, topic, words("o", 30))
    same(read_all(topic, 30, "read_uncommitted"), words("o", 30))
    same(read_all(topic, 0, limit=3), [])
    p.commit_transaction(30)
    same(read_all(topic, 30), words("o", 30))


def txn_offsets():
    """Consume, transform, produce: offsets are committed with the transaction or not at all."""
    source, sink, group = new_topic(), new_topic(), fresh("g")
    send(producer(enable_idempotence=True), source, words("x", 300))
    p = producer(transactional_id=txn_id())
    p.init_transactions(30)
    c = consumer(group)
    c.subscribe([source])
    got = [m.value().decode() for m in read(c, 300)]

    def turn(end):
        p.begin_transaction()
        send(p, sink, ["y" + v for v in got])
        p.send_offsets_to_transaction(c.position(c.assignment()), c.consumer_group_metadata(), 30)
        end(30)
    parts = [TopicPartition(source, i) for i in range(PARTS)]
    turn(p.abort_transaction)
    same([t.offset for t in c.committed(parts, 30)], [-1001] * PARTS)
    turn(p.commit_transaction)
    same([t.offset for t in c.committed(parts, 30)], [100] * PARTS)
    c.close()
    same(read_all(sink, 300), ["y" + v for v in words("x", 300)])


def txn_fenced():
    topic, name = new_topic(), txn_id()
    old = producer(transactional_id=name)
    old.init_transactions(30)
    old.begin_transaction()
    send(old, topic, words("old", 30))
    new = producer(transactional_id=name)
    new.init_transactions(30)
    new.begin_transaction()
    send(new, topic, words("new", 30))
    new.commit_transaction(30)
    try:
        old.commit_transaction(30)
    except KafkaException as e:
        if not e.args[0].fatal():
            raise Exception("the old producer's commit failed, but not for good: %s" % e)
    else:
        raise Exception("the old producer committed")
    same(read_all(topic, 30), words("new", 30))


def txn_timeout():
    """A transaction that is left open is aborted when its time is over, and readers go on."""
    topic, name = new_topic(), txn_id()
    old = producer(transactional_id=name, transaction_timeout_ms=3000)
    old.init_transactions(30)
    old.begin_transaction()
    send(old, topic, words("late", 30))
    send(producer(enable_idempotence=True), topic, words("plain", 30))
    same(read_all(topic, 30), words("plain", 30))
    try:
        old.commit_transaction(30)
    except KafkaException:
        return
    raise Exception("committed after the timeout")


def admin():
    a, topic = AdminClient({"bootstrap.servers": ADDR}), new_topic(1)
    a.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    end = time.time() + 30
    while len(a.list_topics(topic, 10).topics[topic].partitions) != 3:
        if time.time() > end:
            raise Exception("partitions were not added")
        time.sleep(0.1)
    configs = list(a.describe_configs([ConfigResource("topic", topic)]).values())[0].result(30)
    same(configs["cleanup.policy"].value, "delete")
    group = fresh("listed")
    c = consumer(group)
    c.subscribe([topic])
    p = producer()
    for v in words("l", 3):
        p.produce(topic, v)
    p.flush(30)
    read(c, 3)
    if group not in [g.id for g in a.list_groups(timeout=30)]:
        raise Exception("the group is not listed")
    same([g.state for g in a.list_groups(group, timeout=30)], ["Stable"])
    c.close()
    a.delete_topics([topic])[topic].result(30)


CHECKS = [produce_consume, idempotent, offsets_for_times, subscribe_commit_resume, two_members, two_members_cooperative, static_member,
          txn_commit, txn_abort, txn_open_is_invisible, txn_offsets, txn_fenced, txn_timeout, admin]

def attempt(check):
    try:
        check()
        return ""
    except Exception as e:
        return (type(e).__name__ + " " + str(e)).replace("\n", " ")


if __name__ == "__main__":
    for check in CHECKS:
        name = check.__name__.replace("_", "-")
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        # A machine too busy to keep its leaders may fail a check that is right, so each gets a second try, and the line says so.
        first = attempt(check)
        error = first and attempt(check)
        print("FAIL" if error else "PASS", name, error or (first and "at the second try: " + first), flush=True)
