"""Kafka's console producer and consumer, in the ways people use them."""

from __future__ import annotations

from interop.checks import check
from interop.site import Site

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(site: Site, topic: str, *arguments: str, typed: str) -> None:
    site.kafka("kafka-console-producer", "--topic", topic, *arguments, typed=typed).expect().lacks("ERROR")


@check("kafka-console-producer")
def sends_what_the_consumer_reads_from_the_beginning(site: Site) -> None:
    name = site.topic()
    produce(site, name, typed="one\ntwo\nthree\n")  # acks=all and idempotent, unless told otherwise
    site.consume(name, "--from-beginning", messages=3).expect("Processed a total of 3 messages").equals(
        ["one", "two", "three"]
    )


@check("kafka-console-producer")
def makes_a_topic_by_writing_to_it(site: Site) -> None:
    name = site.fresh("made-by-writing")
    produce(site, name, typed="first\n")
    site.consume(name, "--from-beginning", messages=1).expect("^first$")


@check("kafka-console-producer")
def sends_keys_headers_and_nulls(site: Site) -> None:
    name = site.topic()
    reader = [f"--reader-property={each}" for each in ("parse.key=true", "parse.headers=true", "null.marker=NULL")]
    produce(site, name, *reader, typed="h1:v1,h2:v2\tkey1\tvalue1\nNULL\tkey2\tNULL\n")
    formatter = [
        f"--formatter-property=print.{each}=true" for each in ("key", "headers", "partition", "offset", "timestamp")
    ]
    read = site.consume(name, "--from-beginning", *formatter, messages=2)
    read.expect(r"^CreateTime:\d+\tPartition:0\tOffset:0\th1:v1,h2:v2\tkey1\tvalue1$")
    read.expect(r"^CreateTime:\d+\tPartition:0\tOffset:1\tNO_HEADERS\tkey2\tnull$")


@check("kafka-console-producer")
def compresses_with_every_codec(site: Site) -> None:
    name = site.topic()
    for codec in CODECS:
        produce(
            site, name, "--compression-codec", codec, typed="".join(f"{codec} {n} {'x' * 200}\n" for n in range(20))
        )
    expected = [f"{codec} {n} {'x' * 200}" for codec in CODECS for n in range(20)]
    site.consume(name, "--from-beginning", messages=len(expected)).expect().equals(expected)


@check("kafka-console-producer")
def sends_with_every_acks(site: Site) -> None:
    name = site.topic()
    for acks in ("0", "1", "all"):
        plain = ("--command-property", f"acks={acks}", "--command-property", "enable.idempotence=false")
        produce(site, name, *plain, typed=f"acks {acks}\n")
    site.consume(name, "--from-beginning", messages=3).expect().equals(["acks 0", "acks 1", "acks all"])


@check("kafka-console-producer")
def is_told_that_a_message_is_too_large(site: Site) -> None:
    name = site.topic(config={"max.message.bytes": "2000"})
    sent = site.kafka("kafka-console-producer", "--topic", name, typed="x" * 5000 + "\n")
    sent.shows("RecordTooLargeException|MESSAGE_TOO_LARGE")
    site.kafka("kafka-get-offsets", "--topic", name).expect(f"^{name}:0:0$")


@check("kafka-console-consumer")
def goes_on_where_its_group_was(site: Site) -> None:
    name, group = site.filled_topic(10), site.fresh("group")
    first = site.consume(name, "--group", group, "--from-beginning", messages=4)
    first.expect().equals(["m1", "m2", "m3", "m4"])
    site.consume(name, "--group", group, messages=6).expect().equals([f"m{n}" for n in range(5, 11)])


@check("kafka-console-consumer")
def reads_from_an_offset_and_by_pattern(site: Site) -> None:
    name = site.filled_topic(10)
    site.consume(name, "--partition", "0", "--offset", "7", messages=3).expect().equals(["m8", "m9", "m10"])
    arguments = ("--include", f"{name[:-1]}.*", "--from-beginning", "--max-messages", "10", "--timeout-ms", "15000")
    site.kafka("kafka-console-consumer", *arguments).expect("Processed a total of 10 messages")


@check("kafka-console-consumer")
def reads_committed_and_every_partition(site: Site) -> None:
    name = site.topic(partitions=4)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    produce(site, name, *keyed, typed="".join(f"k{n % 8}:v{n}\n" for n in range(80)))
    read = site.consume(name, "--from-beginning", "--isolation-level", "read_committed", messages=80).expect()
    if sorted(read.lines()) != sorted(f"v{n}" for n in range(80)):
        raise read.failure("every value, each once")


@check("kafka-console-consumer")
def shows_the_offsets_topic_as_kafka_writes_it(site: Site) -> None:
    name, group = site.filled_topic(3), site.fresh("group")
    site.consume(name, "--group", group, "--from-beginning", messages=3).expect()
    formatter = ("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
    limits = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "6000")
    site.kafka("kafka-console-consumer", *limits, *formatter).shows(rf'"group":"{group}".*"topic":"{name}".*"offset":3')
