"""confluent-kafka or aiokafka, driven by the interop test (see ../interop_test.go for the record format, and
../programs_test.go for how): client.py confluent|aiokafka. A line is

    produce BOOTSTRAP TOPIC CODEC PREFIX COUNT | consume BOOTSTRAP TOPIC
"""
import asyncio
import sys
import traceback

FIRST_TIMESTAMP = 1700000000000


def line(partition, offset, timestamp, key, value, headers):
    def text(b):
        return "null" if b is None else b.decode()

    extra = "".join(f" {k}={text(v)}" for k, v in headers or [])
    return f"{partition} {offset} {timestamp} {text(key)} {text(value)}{extra}"


def confluent_produce(bootstrap, topic, codec, prefix, count):
    from confluent_kafka import Producer

    failures = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for i in range(count):
        producer.produce(topic, partition=i % 3, timestamp=FIRST_TIMESTAMP + i, key=f"k{i}", value=f"{prefix}-{i}",
                         headers=[("h", prefix.encode())], on_delivery=lambda err, _: err and failures.append(err))
        producer.poll(0)
    left = producer.flush(240)
    if failures or left:
        raise RuntimeError(f"{len(failures)} failed ({failures[:1]}), {left} not delivered")


def confluent_consume(bootstrap, topic):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=240).topics[topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=240)[1] for p in partitions}
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    left = sum(ends.values())
    while left:
        message = consumer.poll(240)
        if message is None or message.error():
            raise RuntimeError(f"{left} records missing: {message and message.error()}")
        left -= 1
        print(line(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), message.headers()))
    consumer.close()


async def aiokafka_produce(bootstrap, topic, codec, prefix, count):
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec)
    await producer.start()
    try:
        sent = [await producer.send(topic, partition=i % 3, timestamp_ms=FIRST_TIMESTAMP + i, key=b"k%d" % i,
                                    value=f"{prefix}-{i}".encode(), headers=[("h", prefix.encode())]) for i in range(count)]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def aiokafka_consume(bootstrap, topic):
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    try:
        cluster = await consumer._client.fetch_all_metadata()
        partitions = [TopicPartition(topic, p) for p in cluster.partitions_for_topic(topic)]
        consumer.assign(partitions)
        left = sum((await consumer.end_offsets(partitions)).values())
        await consumer.seek_to_beginning()
        while left:
            for batch in (await asyncio.wait_for(consumer.getmany(timeout_ms=1000), 240)).values():
                for r in batch:
                    left -= 1
                    print(line(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers))
    finally:
        await consumer.stop()


def call(library, verb, *args):
    if verb == "produce":
        args = (*args[:4], int(args[4]))
    result = globals()[f"{library}_{verb}"](*args)
    if asyncio.iscoroutine(result):
        asyncio.run(result)


def main(library):
    for line in sys.stdin:
        status = 0
        try:
            call(library, *line.split())
        except Exception:
            traceback.print_exc()
            status = 1
        print("exit", status, flush=True)


main(sys.argv[1])
