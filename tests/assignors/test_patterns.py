from __future__ import annotations

import subprocess
import sys
import time

import pytest

from penstock.groups.patterns import LENGTH_MAX, compile_pattern
from penstock.protocol.errors import ApiError, ErrorCode
from tests.machine import slowness


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("order", "orders", False),
        ("rders", "orders", False),
        ("orders.*", "orders-eu", True),
        ("^orders-.*$", "orders-eu", True),
        ("a|ab", "ab", True),
        ("^a|^b", "b", True),
        ("(?i)ORDERS", "orders", True),
        (r"orders\.v[0-9]+", "orders.v12", True),
        (r"orders\.v[0-9]+", "orders-v12", False),
        ("", "orders", False),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern: str, name: str, matches: bool) -> None:
    assert compile_pattern(pattern).matches(name) is matches


@pytest.mark.parametrize("pattern", ["(", "[a-", "a**", r"(a)\1", "(?=a)", "a{1001}", "a" * (LENGTH_MAX + 1)])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as refused:
        compile_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "SubscribedTopicRegex" in (refused.value.message or "")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*a){20}", ".*" * 2000])
def test_no_pattern_takes_long(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    began = time.thread_time()
    for _ in range(100):
        compiled.matches("a" * 248 + "!")
    assert time.thread_time() - began < 1 * slowness()


def test_the_library_is_not_loaded_before_there_is_a_pattern() -> None:
    check = "import sys, penstock.groups.patterns; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
