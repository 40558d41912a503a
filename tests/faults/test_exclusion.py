"""Two brokers cannot have one folder or one port, and the second says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.protocol.errors import ErrorCode
from tests.brokers import BrokerProcess, free_port
from tests.clients.steps import create_topic
from tests.clients.wire import Wire, batch_of


def start(address: str, data: Path) -> tuple[int, str]:
    """The exit code of a broker that cannot start, and what it says."""
    command = [sys.executable, "-m", "penstock", "start", "--quiet", "--listen", address, "--data", str(data)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


def test_a_second_broker_on_one_folder_is_refused(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "mine")
    code, said = start(f"127.0.0.1:{free_port()}", broker.data)
    assert code not in (0, None)
    assert "another broker" in said
    assert str(broker.data) in said
    assert "Traceback" not in said
    with Wire(broker.bootstrap) as wire:  # the first is unharmed
        assert wire.produce(topic, batch_of(b"x")).error_code == ErrorCode.NONE
    assert broker.stop() == 0
    broker.start()
    with Wire(broker.bootstrap) as wire:
        assert wire.fetch(topic, 0).high_watermark == 1


def test_a_broker_whose_folder_was_freed_by_a_kill_starts(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    broker.kill()
    broker.start()
    assert broker.stop() == 0


def test_a_broker_whose_port_is_taken_says_so(new_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = new_broker()
    code, said = start(broker.bootstrap, tmp_path / "another")
    assert code not in (0, None)
    assert broker.bootstrap in said
    assert "in use" in said
    assert "Traceback" not in said


def test_a_broker_that_cannot_write_its_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    code, said = start(f"127.0.0.1:{free_port()}", tmp_path / "file" / "data")
    assert code not in (0, None)
    assert "Traceback" not in said
    assert str(tmp_path / "file") in said
