"""What a check is, how checks are run side by side, and how their outcome is shown."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum

from interop.site import Failed, Missing, Site


class Verdict(Enum):
    PASSED = "passed"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    tool: str
    title: str
    run: Callable[[Site], None]
    alone: bool = False  # it measures, burns the machine or breaks something: others wait
    of_cluster: bool | None = None  # only against a cluster, or only against one broker; None: both

    @property
    def name(self) -> str:
        return f"{self.tool} {self.title}"


@dataclass(frozen=True, slots=True)
class Outcome:
    check: Check
    verdict: Verdict
    seconds: float
    why: str = ""


CHECKS: list[Check] = []


def check(
    tool: str, *, alone: bool = False, of_cluster: bool | None = None
) -> Callable[[Callable[[Site], None]], Callable[[Site], None]]:
    """Registers a check; its title is its function's name, read as a sentence."""

    def register(run: Callable[[Site], None]) -> Callable[[Site], None]:
        CHECKS.append(Check(tool, run.__name__.replace("_", " "), run, alone, of_cluster))
        return run

    return register


def choose(words: Sequence[str], *, is_cluster: bool) -> list[Check]:
    """Those whose name has any of the words in it; all of them if there are no words."""
    fitting = (each for each in CHECKS if each.of_cluster in (None, is_cluster))
    return [each for each in fitting if not words or any(word in each.name for word in words)]


def run_all(checks: Iterable[Check], site: Site, jobs: int) -> list[Outcome]:
    checks = list(checks)
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(lambda each: run_one(each, site), (each for each in checks if not each.alone)))
    return outcomes + [run_one(each, site) for each in checks if each.alone]


def run_one(each: Check, site: Site) -> Outcome:
    began = time.monotonic()
    verdict, why = Verdict.PASSED, ""
    try:
        each.run(site)
    except Missing as missing:
        verdict, why = Verdict.SKIPPED, str(missing)
    except Failed as failure:
        verdict, why = Verdict.FAILED, str(failure)
    except Exception:
        verdict, why = Verdict.FAILED, traceback.format_exc()
    outcome = Outcome(each, verdict, time.monotonic() - began, why)
    print(_line(outcome), flush=True)
    return outcome


def _line(outcome: Outcome) -> str:
    return f"  {outcome.verdict.value:8} {outcome.seconds:5.1f} s  {outcome.check.tool:26} {outcome.check.title}"


def table(outcomes: Sequence[Outcome]) -> str:
    """By tool, then what went wrong in full, then one line that counts."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.check.tool)
    lines = ["", *map(_line, ordered), ""]
    for outcome in ordered:
        if outcome.verdict is Verdict.SKIPPED:
            lines.append(f"{outcome.check.name}: skipped: {outcome.why}")
        if outcome.verdict is Verdict.FAILED:
            lines += [f"{outcome.check.name}: FAILED", _indented(outcome.why), ""]
    counts = {verdict: sum(outcome.verdict is verdict for outcome in outcomes) for verdict in Verdict}
    lines.append(
        ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count) or "nothing to run"
    )
    return "\n".join(lines)


def _indented(text: str) -> str:
    return re.sub("^", "    ", text.strip(), flags=re.MULTILINE)
