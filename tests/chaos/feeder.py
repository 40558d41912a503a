"""The input: an idempotent producer that numbers its messages in each partition, at a steady rate."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from tests.faults.load import PATIENT

PER_SECOND = 1000
FLUSH_TIMEOUT_S = 120.0


class Feeder:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.sent = [0] * partitions
        self.acknowledged = 0
        self.failures: list[str] = []
        self._topic = topic
        config = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**config, **PATIENT, "message.timeout.ms": 300_000})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began, total = time.monotonic(), 0
        while not self._stop.is_set():
            while total < (time.monotonic() - began) * PER_SECOND:
                partition = total % len(self.sent)
                try:
                    self._producer.produce(
                        self._topic, b"%d" % self.sent[partition], partition=partition, on_delivery=self._delivered
                    )
                except BufferError:
                    break
                self.sent[partition] += 1
                total += 1
            self._producer.poll(0.02)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))

    def finish(self) -> None:
        """Everything that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert not left, f"{left} messages of the input were never acknowledged"
        assert not self.failures, f"messages of the input failed: {self.failures[:3]}"
