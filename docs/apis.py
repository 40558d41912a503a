"""Writes docs/apis.md, the table of what is served, from the table that serves it: `python docs/apis.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.server.routing import HANDLERS, Route

PAGE = Path(__file__).with_name("apis.md")

HEAD = """\
# What is served

Kafka's protocol, at the floors of Kafka 4.x. This is what ApiVersions announces to a client, which then chooses.
The page is written by [apis.py](apis.py) from the broker's table of handlers,
[routing.py](../src/penstock/server/routing.py).

| key | API | versions | what it does |
| ---: | --- | --- | --- |
"""

TAIL = """
Produce is announced from version 0, because older versions of librdkafka drop compression in silence otherwise;
versions 0 to 2 are refused when they are sent. Version 6 of InitProducerId, for transactions that two phases commit
(KIP-939), is served and not announced: Kafka calls it unstable, and clients would choose it. A request for any other
version that is not in the table closes its connection; only ApiVersions itself is answered, in version 0 and with
`UNSUPPORTED_VERSION`.
"""


def render() -> str:
    return HEAD + "".join(row(key, route) for key, route in sorted(HANDLERS.items())) + TAIL


def row(key: int, route: Route) -> str:
    name, meaning = summary(route)
    first, last = route.request.versions.first, route.advertised.last
    served = str(first) if first == last else f"{first}–{last}"
    return f"| {key} | {name} | {served} | {meaning} |\n"


def summary(route: Route) -> tuple[str, str]:
    """A handler's docstring begins with the API's name, a colon, and a sentence."""
    paragraph = (sys.modules[route.handle.__module__].__doc__ or "").split("\n\n")[0]
    name, _, meaning = " ".join(paragraph.split()).partition(": ")
    assert f"{name}Request" == route.request.__name__, f"the docstring of {route.handle.__module__} names no API"
    return name, meaning[0].upper() + meaning[1:]


if __name__ == "__main__":
    PAGE.write_text(render())
