"""Writes docs/settings.md, the table of all settings, from their declarations: `python docs/settings.py`."""

from __future__ import annotations

from pathlib import Path

from penstock.cluster.group_settings import LIMITS
from penstock.cluster.settings import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Setting
from penstock.cluster.topic_settings import SYNONYMS

PAGE = Path(__file__).with_name("settings.md")

# Declared because tools and configuration files carry them; nothing in the broker reads them.
WITHOUT_EFFECT = frozenset(
    {
        "background.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.size",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "sasl.kerberos.min.time.before.relogin",
        "preallocate",
        "segment.index.bytes",
        "segment.jitter.ms",
    }
)
# The broker's names for the same things.
ALSO_WITHOUT_EFFECT = frozenset(
    synonym.name for name in WITHOUT_EFFECT if name in SYNONYMS for synonym in SYNONYMS[name]
)

UNITS = ((24 * 3600 * 1000, "d"), (3600 * 1000, "h"), (60 * 1000, "min"), (1000, "s"))
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
NO_LIMIT = {2**63 - 1, 2**31 - 1}

HEAD = """\
# Settings

Every setting of a broker and of a topic, under Kafka's names and with Kafka's meaning; `flush`, `record.validation`,
`retention.hold.group` and `retention.hold.max.bytes` are Penstock's own, and so are `listen`, `advertised`, `data`,
`log.level`, `log.format`, `queued.max.bytes` and `idle.poll.us`. An unknown name or a value that is not admitted is
refused.

The page is written by [settings.py](settings.py). How settings are given is told in the
[README](../README.md#configuration).
"""

BROKER_HEAD = """
## Of a broker

*while running*: may also be changed while the broker runs, by any Kafka admin client. Settings marked † are accepted
and have no effect yet.

| setting | type | default | while running | meaning |
| --- | --- | --- | --- | --- |
"""

TOPIC_HEAD = """
## Of a topic

A topic's settings may all be changed while the broker runs: `penstock topic alter NAME --set SETTING=VALUE`. A topic
that does not set one gets the broker's, from the setting in the last column.

| setting | type | default | meaning | broker's setting |
| --- | --- | --- | --- | --- |
"""

GROUP_HEAD = """
## Of a group

A consumer group may have settings of its own, before it exists too; any Kafka admin client changes them (as configs of
type GROUP), and they count from the next heartbeat on.

| setting | type | meaning | broker's setting | between |
| --- | --- | --- | --- | --- |
"""


def render() -> str:
    brokers = "".join(broker_row(setting) for _, setting in sorted(BROKER_SETTINGS.items()))
    topics = "".join(topic_row(setting) for _, setting in sorted(TOPIC_SETTINGS.items()) if not setting.internal)
    groups = "".join(group_row(setting) for _, setting in sorted(GROUP_SETTINGS.items()))
    return HEAD + BROKER_HEAD + brokers + TOPIC_HEAD + topics + GROUP_HEAD + groups


def broker_row(setting: Setting) -> str:
    running = "yes" if setting.dynamic else ""
    return line(named(setting), setting.type.name.lower(), default(setting), running, escaped(setting.documentation))


def topic_row(setting: Setting) -> str:
    synonyms = " ".join(f"`{synonym.name}`" for synonym in SYNONYMS.get(setting.name, ()))
    return line(named(setting), setting.type.name.lower(), default(setting), escaped(setting.documentation), synonyms)


def group_row(setting: Setting) -> str:
    limits = LIMITS[setting.name]
    between = f"`{limits.least}` and `{limits.most}`"
    documentation = escaped(setting.documentation)
    return line(named(setting), setting.type.name.lower(), documentation, f"`{limits.default}`", between)


def named(setting: Setting) -> str:
    mark = " †" if setting.name in WITHOUT_EFFECT | ALSO_WITHOUT_EFFECT else ""
    return f"`{setting.name}`{mark}"


def default(setting: Setting) -> str:
    """As it is written, and in a unit that a person reads where that says more."""
    text = setting.text(setting.default)
    if not text:
        return ""
    if isinstance(setting.default, bool) or not isinstance(setting.default, int):
        return f"`{text}`"
    if setting.default in NO_LIMIT:
        return f"`{text}` (no limit)"
    units = UNITS if setting.name.endswith(".ms") else SIZES if setting.name.endswith(".bytes") else ()
    for size, unit in units:
        if setting.default and setting.default % size == 0:
            return f"`{text}` ({setting.default // size} {unit})"
    return f"`{text}`"


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("__", "\\_\\_")


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(render())
