"""How long a job waits for brokers."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from penstock.pipeline.brokers import Brokers
from penstock.pipeline.problem import PipelineError
from tests.brokers import BrokerProcess
from tests.pipeline.histories import settings_of


def test_a_driver_that_plans_is_told_soon_that_nobody_is_there() -> None:
    settings = replace(settings_of("127.0.0.1:1").hasty(), reach_s=0.2, patience_s=60.0)
    begun = time.monotonic()
    with Brokers(settings) as brokers, pytest.raises(PipelineError, match=r"no broker answers \(127\.0\.0\.1:1: "):
        brokers.topics()
    assert time.monotonic() - begun < 10


def test_whoever_has_reached_a_broker_once_waits_until_one_is_back(broker: BrokerProcess) -> None:
    settings = replace(settings_of(broker.bootstrap), reach_s=0.0, patience_s=60.0)
    with Brokers(settings) as brokers:
        brokers.topics()
        brokers.settings = replace(settings, bootstrap=())  # gone for a while
        brokers._addresses.clear()
        brokers.forget()
        tries = []

        def attempt() -> bool:
            tries.append(len(tries))
            if len(tries) == 4:
                brokers.settings = settings
            return bool(brokers.any())

        assert brokers.until_answered(attempt, "a broker")
        assert len(tries) == 4
