"""Where checks happen: brokers, a folder for files, a way to run a program and to say what it should have printed."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import jars
from bench.fleet import Fleet
from bench.peers import Peer, die_with_parent

TIMEOUT_S = 90.0
SHOWN_MAX = 3000  # characters of a program's output in a failure

# A tool that runs for a second need not be compiled well.
JAVA = [
    "java",
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-compatibility": "org.apache.kafka.tools.ClientCompatibilityTest",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-compaction-tester": "org.apache.kafka.tools.LogCompactionTester",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactional-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
# Those that ask for the broker in another way than --bootstrap-server.
WITHOUT_ADDRESS = {
    "kafka-cluster",
    "kafka-dump-log",
    "kafka-e2e-latency",
    "kafka-producer-perf-test",
    "kafka-transactional-copier",
}


class Failed(Exception):
    """What a program printed, beside what was expected."""


class Missing(Exception):
    """What has to be installed for a check to run."""


@dataclass(frozen=True, slots=True)
class Output:
    command: str
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def lines(self) -> list[str]:
        return self.out.splitlines()

    def expect(self, *patterns: str) -> Output:
        """Every pattern is somewhere in the output, and the program ended well."""
        if self.code:
            raise self.failure(f"it ended with {self.code}")
        return self.shows(*patterns)

    def shows(self, *patterns: str) -> Output:
        for pattern in patterns:
            if not re.search(pattern, self.text, re.MULTILINE):
                raise self.failure(f"nothing like {pattern!r}")
        return self

    def lacks(self, *patterns: str) -> Output:
        for pattern in patterns:
            if re.search(pattern, self.text, re.MULTILINE):
                raise self.failure(f"it should have nothing like {pattern!r}")
        return self

    def equals(self, lines: list[str]) -> Output:
        if self.lines() != lines:
            raise self.failure(f"expected exactly {lines}")
        return self

    def failure(self, why: str) -> Failed:
        return Failed(f"$ {self.command}\n{self.text.strip()[-SHOWN_MAX:]}\n→ {why}")


@dataclass(slots=True)
class Site:
    peer: Peer
    work: Path
    fleet: Fleet | None = None  # of which the peer is the first; topics of checks are led by it
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def address(self) -> str:
        return self.peer.address

    @property
    def brokers(self) -> int:
        return len(self.fleet.members) if self.fleet else 1

    def fresh(self, what: str) -> str:
        """A name for a topic, a group or a file that nobody else uses."""
        return f"{what}-{next(self._numbers)}"

    def file(self, what: str, content: str) -> Path:
        path = self.work / self.fresh(what)
        path.write_text(content)
        return path

    # ---- running

    def run(
        self,
        *command: str,
        typed: str = "",
        timeout_s: float = TIMEOUT_S,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Output:
        """`typed` is what a person would type into it."""
        shown = " ".join(command)
        try:
            done = subprocess.run(
                command, input=typed, capture_output=True, text=True, timeout=timeout_s, cwd=cwd, env=env
            )
        except FileNotFoundError:
            raise Missing(f"{command[0]} is not installed") from None
        except subprocess.TimeoutExpired as expired:
            printed = b"".join(filter(None, (expired.stdout, expired.stderr))).decode(errors="replace")
            raise Failed(f"$ {shown}\n{printed.strip()[-SHOWN_MAX:]}\n→ it did not end in {timeout_s:.0f} s") from None
        return Output(shown, done.returncode, done.stdout, done.stderr)

    def kafka(self, tool: str, *arguments: str, typed: str = "", timeout_s: float = TIMEOUT_S) -> Output:
        """One of Kafka's own tools."""
        done = self.run(*self._java(tool, arguments), typed=typed, timeout_s=timeout_s)
        return Output(" ".join((tool, *arguments)), done.code, done.out, done.err)

    @contextmanager
    def background(self, tool: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The same, while the block lasts; then it is asked to end, as by Ctrl-C."""
        process = subprocess.Popen(
            self._java(tool, arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def _java(self, tool: str, arguments: tuple[str, ...]) -> list[str]:
        address = [] if tool in WITHOUT_ADDRESS else ["--bootstrap-server", self.address]
        try:
            return [*JAVA, "-cp", jars.classpath(), TOOLS[tool], *address, *arguments]
        except jars.NoKafka as missing:
            raise Missing(str(missing)) from None

    # ---- what many checks begin with

    def topic(self, partitions: int = 1, config: Mapping[str, str] = {}) -> str:
        name = self.fresh("interop")
        self.peer.create_topics([name], partitions, config)
        return name

    def filled_topic(self, messages: int = 10, partitions: int = 1) -> str:
        """With messages m1, m2, … typed into the console producer."""
        name = self.topic(partitions)
        typed = "".join(f"m{number}\n" for number in range(1, messages + 1))
        self.kafka("kafka-console-producer", "--topic", name, typed=typed).expect()
        return name

    def consume(self, topic: str, *arguments: str, messages: int) -> Output:
        """Exits once it has so many, or when none came for a while."""
        limits = ("--max-messages", str(messages), "--timeout-ms", "15000")
        return self.kafka("kafka-console-consumer", "--topic", topic, *limits, *arguments)
