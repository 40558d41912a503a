"""What a producer knows of topics: that each exists, and how many partitions it has."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from penstock.client.errors import PenstockError, TopicNotFound, from_kafka, no_broker
from penstock.client.names import check_topic

NOT_NOW = frozenset({KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TIMED_OUT})
UNKNOWN_S = 1.0  # a broker of Kafka may not have heard yet of a topic that was just created
COUNT_EVERY_S = 300.0  # as librdkafka does
COUNT_S_MAX = 2.0


class KnownTopics:
    """`counts_again`: partitions may be added, of which librdkafka's own partitioners are told, and no others."""

    def __init__(self, kafka: KafkaProducer, bootstrap: str, timeout_s: float, counts_again: bool) -> None:
        self._kafka = kafka
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._counts_again = counts_again
        self.partitions: dict[str, int] = {}  # how many
        self._counted_s: dict[str, float] = {}  # when

    def knows(self, topic: str) -> bool:
        is_fresh = not self._counts_again or time.monotonic() - self._counted_s.get(topic, 0.0) < COUNT_EVERY_S
        return topic in self.partitions and is_fresh

    def meet(self, topic: str) -> None:
        """Raises if there is no broker, or no such topic. May create it, as Kafka does."""
        check_topic(topic)
        if topic in self.partitions:
            self._count_again(topic)
            return
        deadline_s = time.monotonic() + self._timeout_s
        unknown_until_s = min(deadline_s, time.monotonic() + UNKNOWN_S)
        while True:
            try:
                found = self._kafka.list_topics(topic, max(0.1, deadline_s - time.monotonic())).topics[topic]
                error = found.error
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() != KafkaError._TIMED_OUT:
                    raise no_broker(self._bootstrap, error) from failure
            if error is None:
                self._note(topic, len(found.partitions))
                return
            is_unknown = error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if time.monotonic() >= (unknown_until_s if is_unknown else deadline_s):
                raise self._unmet(topic, error)
            if not is_unknown and error.code() not in NOT_NOW:
                raise self._unmet(topic, error)
            time.sleep(0.02)

    def _note(self, topic: str, count: int) -> None:
        self.partitions[topic] = count
        self._counted_s[topic] = time.monotonic()

    def _count_again(self, topic: str) -> None:
        """Where nobody answers, what was counted before will do: sending says what is the matter."""
        count = 0
        try:
            count = len(self._kafka.list_topics(topic, COUNT_S_MAX).topics[topic].partitions)
        except KafkaException:
            pass
        self._note(topic, count or self.partitions[topic])

    def _unmet(self, topic: str, error: KafkaError) -> PenstockError:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            hint = (
                f"Create it with 'penstock topic create {topic}', or let the broker do so: auto.create.topics.enable."
            )
            return TopicNotFound(f"there is no topic {topic!r}.", hint, kafka_error=error.name())
        if error.code() == KafkaError._TIMED_OUT:
            return no_broker(self._bootstrap, error)
        return from_kafka(error, f"sending to {topic!r}")
