from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Finished, clean_environment, command

Penstock = Callable[..., Finished]

PIECES_OF_TEN = {
    "--from start": "0123456789",
    "--from end": "",
    "--from 7": "789",
    "--from -2": "89",
    "--from 2 --to 5": "234",
    "--to 3": "012",
    "--from 4 -n 2": "45",
    "--from 1h": "0123456789",
    "--from 1h --to 1m": "",
    "--from 99": "",
    "--from 5 --to 2": "",
    "--partition 1": "",
}


def test_lines_go_in_and_come_out(penstock: Penstock, topic: str) -> None:
    sent = penstock("produce", topic, "--partition", "0", stdin="one\ntwo\n\nthree")
    assert (sent.code, sent.out, sent.err) == (0, "", f"Produced 4 messages to {topic}.\n")
    assert penstock("consume", topic, "--no-follow").out == "one\ntwo\n\nthree\n"


def test_keys_headers_and_formats(penstock: Penstock, topic: str) -> None:
    options = ["--key-separator", ":", "-H", "source=shop", "-H", "source=web", "-p", "2"]
    penstock("produce", topic, *options, stdin="a:1\nb:2:3\n")
    out = penstock("consume", topic, "--no-follow", "-f", r"%t %p %o %k=%v %h\n").out
    assert out == f"{topic} 2 0 a=1 source=shop,source=web\n{topic} 2 1 b=2:3 source=shop,source=web\n"


def test_one_key_for_all_puts_all_in_one_partition(penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, "--key", "customer-7", stdin="1\n2\n3\n4\n5\n6\n7\n8\n")
    messages = penstock("consume", topic, "--no-follow", "--json").json_lines
    assert len({message["partition"] for message in messages}) == 1
    assert {message["key"] for message in messages} == {"customer-7"}


def test_json_goes_in_and_comes_out(penstock: Penstock, topic: str) -> None:
    lines = '{"key": "a", "value": {"id": 1}, "headers": {"h": "1"}, "partition": 1}\n{"key": "a", "value": null}\n'
    sent = penstock("produce", topic, "--json", stdin=lines)
    assert sent.json == {"topic": topic, "produced": 2, "failed": 0}
    by_value = {m["value"]: m for m in penstock("consume", topic, "--no-follow", "--json").json_lines}
    assert by_value.keys() == {'{"id": 1}', None}
    first = by_value['{"id": 1}']
    assert (first["partition"], first["key"], first["headers"]) == (1, "a", [{"key": "h", "value": "1"}])


def test_a_bad_line_is_named_and_what_came_before_is_sent(penstock: Penstock, topic: str) -> None:
    sent = penstock("produce", topic, "--key-separator", ":", stdin="a:1\nb2\n")
    assert sent.code == 1
    assert "line 2 has no ':'" in sent.err
    assert penstock("consume", topic, "--no-follow").out == "1\n"


def test_what_the_broker_refuses_is_a_failure(penstock: Penstock, topic: str) -> None:
    penstock("topic", "alter", topic, "--set", "cleanup.policy=compact")
    sent = penstock("produce", topic, "--json", stdin='{"value": "without a key"}\n')
    assert (sent.code, sent.json["produced"], sent.json["failed"]) == (1, 0, 1)
    assert "1 message could not be produced: " in sent.err
    assert "INVALID_RECORD" in sent.err


@pytest.mark.parametrize(
    ("acks", "compression"),
    [("0", "none"), ("1", "none"), ("all", "none"), ("all", "gzip"), ("all", "snappy"), ("1", "lz4"), ("all", "zstd")],
)
def test_every_acknowledgement_and_every_compression(
    penstock: Penstock, topic: str, acks: str, compression: str, tmp_path: Path
) -> None:
    lines = [f"line {number} " + "x" * 100 for number in range(200)]
    (tmp_path / "lines").write_text("\n".join(lines))
    options = ["--acks", acks, "--compression", compression, "-p", "0", "--file", str(tmp_path / "lines")]
    assert penstock("produce", topic, *options).code == 0
    assert penstock("consume", topic, "-n", "200").out.splitlines() == lines


def test_a_partition_that_does_not_exist_is_refused(penstock: Penstock, topic: str) -> None:
    for arguments in (["produce", topic, "-p", "7"], ["consume", topic, "-p", "7"]):
        refused = penstock(*arguments, stdin="x\n")
        assert refused.code == 1
        assert "It has partitions 0 to 2." in refused.err


def test_any_piece_of_a_log(penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    for options, expected in PIECES_OF_TEN.items():
        read = penstock("consume", topic, "--no-follow", *options.split())
        assert (read.code, "".join(read.out.split())) == (0, expected), f"{options}: {read.err}"


def test_several_topics_are_read_together(penstock: Penstock, topic: str) -> None:
    other = f"{topic}-other"
    penstock("topic", "create", other)
    penstock("produce", topic, stdin="here\n")
    penstock("produce", other, stdin="there\n")
    assert sorted(penstock("consume", topic, other, "--no-follow").out.split()) == ["here", "there"]
    penstock("topic", "delete", other, "--yes")


def test_a_group_goes_on_where_it_stopped(penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, "-p", "0", stdin="1\n2\n3\n4\n")
    group = ["--group", f"{topic}-group"]
    assert penstock("consume", topic, *group, "-n", "3").out == "1\n2\n3\n"
    assert penstock("consume", topic, *group, "--no-follow").out == "4\n"
    assert penstock("consume", topic, *group, "--no-follow").out == ""
    assert penstock("consume", topic, "--group", f"{topic}-other", "--no-follow").out == "1\n2\n3\n4\n"
    penstock("group", "delete", f"{topic}-group", f"{topic}-other", "--yes")


def test_following_shows_what_comes_and_ends_with_control_c(penstock: Penstock, bootstrap: str, topic: str) -> None:
    arguments = command("consume", topic, "--bootstrap", bootstrap)
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        env=clean_environment(),
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
    ) as follower:
        assert follower.stdout is not None
        penstock("produce", topic, stdin="first\n")
        assert follower.stdout.readline() == "first\n"
        sent_at = time.monotonic()
        penstock("produce", topic, stdin="second\n")
        assert follower.stdout.readline() == "second\n"
        assert time.monotonic() - sent_at < 5
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=10) == 0


def test_what_the_client_itself_does_not_take_is_a_failure(penstock: Penstock, topic: str) -> None:
    sent = penstock("produce", topic, "-p", "0", stdin="x" * 2_000_000 + "\nsmall\n")
    assert (sent.code, "Traceback" in sent.err) == (1, False)
    assert "1 message could not be produced: " in sent.err
    assert "MSG_SIZE_TOO_LARGE" in sent.err
    assert penstock("consume", topic, "--no-follow").out == "small\n"


def test_a_reader_that_goes_away_is_noticed_though_nothing_comes(
    penstock: Penstock, bootstrap: str, topic: str
) -> None:
    penstock("produce", topic, stdin="one\n")
    source, sink = os.pipe()
    with subprocess.Popen(command("consume", topic, "--bootstrap", bootstrap), stdout=sink) as reader:
        os.close(sink)
        assert os.read(source, 10) == b"one\n"
        os.close(source)
        reader.wait(timeout=20)


def test_a_reader_that_goes_away_is_no_failure(penstock: Penstock, bootstrap: str, topic: str) -> None:
    penstock("produce", topic, stdin="some words of text\n" * 20_000)
    source, sink = os.pipe()
    arguments = command("consume", topic, "--bootstrap", bootstrap)
    with subprocess.Popen(arguments, stdout=sink, stderr=subprocess.PIPE, env=clean_environment()) as reader:
        os.close(sink)
        os.read(source, 10)
        os.close(source)
        assert reader.wait(timeout=20) == 0
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
