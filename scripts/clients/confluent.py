"""Writes lines to a topic, or reads a topic's records as lines, with librdkafka through confluent_kafka."""
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


def produce(addr, topic, codec):
    failed = []
    producer = Producer({"bootstrap.servers": addr, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
    for line in sys.stdin.buffer:
        while True:
            try:
                producer.produce(topic, line.rstrip(b"\n"), on_delivery=lambda e, m: failed.append(e) if e else None)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60) or failed:
        sys.exit("undelivered: %s" % failed[:3])


def consume(addr, topic):
    consumer = Consumer({"bootstrap.servers": addr, "group.id": "never-joined", "enable.auto.commit": False, "check.crcs": True})
    ends = {}
    for p in consumer.list_topics(topic, 10).topics[topic].partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), 10)
        if high > low:
            ends[p] = high
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    while ends:
        message = consumer.poll(15)
        if message is None:
            sys.exit("no record for 15 seconds, partitions left: %s" % ends)
        if message.error():
            raise KafkaException(message.error())
        sys.stdout.buffer.write(message.value() + b"\n")
        if message.offset() + 1 == ends[message.partition()]:
            del ends[message.partition()]
    consumer.close()


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
