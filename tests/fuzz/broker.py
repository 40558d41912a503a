"""The target that is a whole broker: it answers or hangs up, never fails in a way that it did not foresee, and what an
honest client writes meanwhile is neither lost nor changed, not even by a kill and a restart behind it all."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from penstock.protocol.apis import REQUESTS, RESPONSE_OF
from penstock.protocol.framing import read_request_header, read_response, request_frame
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.brokers import BrokerProcess
from tests.fuzz.batches import sound_batch
from tests.fuzz.mutation import damaged
from tests.fuzz.requests import GROUPS, TOPICS, damaged_frame, random_frame, spliced_frame
from tests.hostile.clients import RawClient, fetch_request, produce_request, sized
from tests.hostile.honest import Canary

ANSWER_S = 0.05  # how long an answer is waited for: some come much later, and rightly so
HELLO_S_MAX = 2.0
CHECKS_EVERY = 40
MAY_KEEP_SILENT = {0, 1, 11, 14}  # Produce without acks, Fetch and those who wait for the rest of a group
CANARY = "canary-that-nothing-random-can-spell"


class LiveBroker:
    name = "broker"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
        self._broker = BrokerProcess(Path(self._folder.name), flush="os").start()
        self._canary = Canary(self._broker.port, CANARY)
        setter = RawClient(self._broker.port)
        for name, config in TOPICS.items():
            setter.create_topic(name, partitions=2, **config)
        setter.ask(FindCoordinatorRequest(coordinator_keys=GROUPS[:1], key_type=0), 4)
        setter.close()
        self._client: RawClient | None = None
        self._inputs = 0
        self._read_to = 0

    # ---- inputs: what is sent on one connection, write by write

    def make(self, rng: random.Random) -> list[bytes]:
        kind = rng.random()
        if kind < 0.25:
            return [random_frame(rng) for _ in range(rng.choice([1, 2, 5]))]
        if kind < 0.65:
            return [damaged_frame(rng) for _ in range(rng.choice([1, 1, 2]))]
        if kind < 0.8:
            return self._make_short_way(rng)
        if kind < 0.9:
            return [spliced_frame(rng)]
        return [damaged(random_frame(rng) + random_frame(rng), rng)]

    def _make_short_way(self, rng: random.Random) -> list[bytes]:
        """Alike often enough to be remembered, and then one that is not quite alike."""
        if rng.random() < 0.6:
            version = rng.choice([8, 9, 11])
            request = produce_request(rng.choice(list(TOPICS)), sound_batch(rng), acks=rng.choice([-1, 1]))
            frame = request_frame(request, version, 1, "fuzz")
        else:
            frame = request_frame(fetch_request(rng.choice(list(TOPICS))), rng.choice([9, 11, 12]), 1, "fuzz")
        return [frame, frame, sized(damaged(frame[4:], rng)), frame, damaged(frame, rng)]

    # ---- running

    def run(self, lines: list[bytes]) -> None:
        client = self._client or RawClient(self._broker.port, ANSWER_S)
        self._client = None
        if self._is_still_good(client, lines):
            self._client = client
        else:
            client.close()
        self._inputs += 1
        self._look_at_the_log()
        if self._inputs % CHECKS_EVERY == 0:
            self._check()

    def _is_still_good(self, client: RawClient, lines: list[bytes]) -> bool:
        """Whether the connection can take another input: all was answered, and nothing more is to come."""
        one_by_one = True
        for data in lines:
            if not client.send(data):
                return False
            one_by_one = one_by_one and int.from_bytes(data[:4], "big") == len(data) - 4
            try:
                answer = client.frame()
            except TimeoutError:
                if not one_by_one or int.from_bytes(data[4:6], "big") in MAY_KEEP_SILENT:
                    return False
                answer = self._late_answer(client)
            if answer is None:
                return False
            if one_by_one:
                _check_answer(data, answer)
        return one_by_one

    def _late_answer(self, client: RawClient) -> bytes | None:
        client.sock.settimeout(HELLO_S_MAX)
        try:
            return client.frame()
        finally:
            client.sock.settimeout(ANSWER_S)

    def _look_at_the_log(self) -> None:
        assert self._broker.process is not None
        assert self._broker.process.poll() is None, "the broker is dead"
        with self._broker.log.open("rb") as file:
            file.seek(self._read_to)
            new = file.read()
        assert b"Traceback" not in new, new.decode(errors="replace")
        self._read_to += len(new)

    def _check(self) -> None:
        began = time.monotonic()
        self._canary.say_hello()
        self._canary.exchange()
        assert time.monotonic() - began < HELLO_S_MAX, "the broker takes too long to answer"

    def finish(self) -> None:
        """What was stored meanwhile must not be in the way of the next start, after any kind of end."""
        self._check()
        self._broker.kill()
        self._broker.start()
        self._canary.come_back()
        assert self._broker.stop() == 0
        self._broker.start()
        self._canary.come_back()
        self._check()
        self._look_at_the_log()

    def close(self) -> None:
        self._broker.close()
        self._folder.cleanup()


def _check_answer(data: bytes, answer: bytes) -> None:
    """Whatever is answered is a response to what was asked, however strange that was."""
    header = read_request_header(memoryview(data)[4:])
    cls = REQUESTS[header.api_key]
    version = header.api_version if header.api_version in cls.versions else 0  # which only ApiVersions answers
    correlation_id, _ = read_response(RESPONSE_OF[cls], answer, version)
    assert correlation_id == header.correlation_id
