"""What the documents say is so: code in them runs, what it prints is what they show, pages that are generated are
current, and whatever they link to exists.

In what they show, `…` stands for anything.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from penstock.broker import config
from penstock.cluster.settings import BROKER_SETTINGS
from penstock.server.routing import HANDLERS
from tests.brokers import BrokerProcess

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DOCUMENTS = sorted([README, ARCHITECTURE, *(ROOT / "docs").rglob("*.md")])
ADDRESS = "127.0.0.1:9092"


class Block(NamedTuple):
    """A fenced block, and the one that follows it if that shows what it prints."""

    language: str
    text: str
    heading: str
    shows: str | None


def blocks(document: Path) -> list[Block]:
    pattern = re.compile(r"^(?:#+ (?P<heading>[^\n]*)|```(?P<language>\w+)\n(?P<text>.*?)^```)$", re.M | re.S)
    found: list[Block] = []
    heading = ""
    for match in pattern.finditer(document.read_text()):
        if match["heading"]:
            heading = match["heading"]
        elif match["language"] == "text" and found:
            found[-1] = found[-1]._replace(shows=match["text"])
        else:
            found.append(Block(match["language"], match["text"], heading, None))
    return found


def named(wanted: Callable[[Block], bool]) -> list[pytest.param]:
    return [pytest.param(block, id=block.heading) for block in blocks(README) if wanted(block)]


def run(command: list[str] | str, bootstrap: str) -> str:
    """Both streams as a terminal shows them, without spaces at the ends of lines."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
        "PENSTOCK_BOOTSTRAP": bootstrap,
    }
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def assert_shown(printed: str, shown: str) -> None:
    pattern = re.escape(shown).replace("…", ".*")
    assert re.fullmatch(pattern, printed, re.S), f"shown:\n{shown}\nprinted:\n{printed}"


# ---- code


# What is shown of Spark is run in tests/pipeline.
@pytest.mark.parametrize("block", named(lambda block: block.language == "python" and block.heading != "Spark"))
def test_a_quick_start_in_python_prints_what_is_shown(block: Block, shared_broker: BrokerProcess) -> None:
    code = block.text.replace(ADDRESS, shared_broker.bootstrap)
    assert block.shows
    assert_shown(run([sys.executable, "-c", code], shared_broker.bootstrap), block.shows)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="there is no kcat here")
@pytest.mark.parametrize("block", named(lambda block: block.language == "sh" and "kcat" in block.text))
def test_a_quick_start_with_kcat_prints_what_is_shown(block: Block, shared_broker: BrokerProcess) -> None:
    assert block.shows
    assert_shown(run(block.text.replace(ADDRESS, shared_broker.bootstrap), shared_broker.bootstrap), block.shows)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_prints_what_is_shown(example: Path, shared_broker: BrokerProcess) -> None:
    every = (block for document in DOCUMENTS for block in blocks(document))
    (shown,) = (block.shows for block in every if f"examples/{example.name}" in block.text)
    assert shown
    assert_shown(run([sys.executable, str(example), shared_broker.bootstrap], shared_broker.bootstrap), shown)


def test_the_command_line_prints_what_is_shown(new_broker: Callable[..., BrokerProcess]) -> None:
    bootstrap = new_broker().bootstrap
    penstock = f'penstock() {{ "{sys.executable}" -m penstock "$@"; }}\n'
    sessions = [block.text for block in blocks(README) if block.language == "console"]
    assert sessions
    for session in sessions:
        for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
            command, _, shown = part.partition("\n")
            printed = run(penstock + command, bootstrap)
            if command.startswith("penstock bench"):  # figures differ, and so do the rows of the histogram
                assert words(printed) == words(shown)
            else:
                assert_shown(printed, shown)


def words(report: str) -> list[str]:
    return re.findall(r"[A-Za-z/]+", report.partition("from produce")[0])


@pytest.mark.parametrize(
    ("document", "block"),
    [
        (document, block)
        for document in DOCUMENTS
        for block in blocks(document)
        if block.language == "toml" and document.name != "pipelines.md"  # whose files are not a broker's
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value.heading,
)
def test_a_settings_file_that_is_shown_can_be_read(document: Path, block: Block, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(block.text)
    config.load(file)


# ---- pages and tables


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["apis", "settings", "client_reference"])
def test_a_generated_page_is_current(name: str) -> None:
    """From the source: what is compiled has no docstrings."""
    compare = (
        "import runpy, sys; page = runpy.run_path(sys.argv[1]); sys.exit(page['PAGE'].read_text() != page['render']())"
    )
    command = [sys.executable, "-c", compare, str(ROOT / "docs" / f"{name}.py")]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, ""), f"run: python docs/{name}.py"


def test_settings_that_are_said_to_have_no_effect_are_read_nowhere() -> None:
    declarations = {"broker_settings.py", "topic_settings.py", "refusals.py"}
    sources = [path for path in (ROOT / "src").rglob("*.py") if path.name not in declarations]
    code = "\n".join(path.read_text() for path in sources)
    assert [name for name in sorted(script("settings").WITHOUT_EFFECT) if f'"{name}"' in code] == []


def test_the_readme_counts_the_apis() -> None:
    assert f"{len(HANDLERS)} APIs" in README.read_text()


def test_the_readme_shows_the_defaults_of_settings() -> None:
    rows = re.findall(r"^\| `([a-z.]+)` \| `([^`]+)`[^|]*\| ", README.read_text(), re.M)
    assert len(rows) > 10
    for name, shown in rows:
        setting = BROKER_SETTINGS[name]
        assert setting.text(setting.default) == shown, name


UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "ms": 1, "s": 1000, "min": 60_000}


def bounds() -> Iterator[tuple[str, str, str | None]]:
    """Rows of the table of bounds: what is shown, the name, and the file of a constant; settings have none."""
    for line in ARCHITECTURE.read_text().splitlines():
        if match := re.match(r"\| [^|]+ \| ([\d,.]+(?: [A-Za-z]+)?) \| (?:\[`(\w+)`\]\(([^)]+)\)|`([a-z.]+)`)", line):
            shown, constant, path, setting = match.groups()
            yield shown, constant or setting, path


def test_the_table_of_bounds_is_current() -> None:
    rows = list(bounds())
    assert len(rows) > 20
    for shown, name, path in rows:
        number, _, unit = shown.replace(",", "").partition(" ")
        value = float(number) * UNITS[unit] if unit else float(number)
        if path is None:
            actual = BROKER_SETTINGS[name].default
        else:
            module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
            actual = getattr(importlib.import_module(module), name)
        assert value in (actual, actual * 1000 if unit in ("s", "min") else actual), f"{name} is {actual}, not {shown}"


# ---- links


def links(document: Path) -> Iterator[tuple[str, str, str]]:
    """Text, path and fragment of every link to a file."""
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
    for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose):
        if "://" not in target:
            path, _, fragment = target.partition("#")
            yield text, path, fragment


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for text, path, fragment in links(document):
        target = (document.parent / path) if path else document
        assert target.exists(), f"{text}: there is no {path}"
        if fragment:
            assert fragment in anchors(target), f"{text}: {target.name} has no heading {fragment!r}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_that_is_named_is_where_the_link_leads(document: Path) -> None:
    """A link from `Class.function`, `function` or `CONSTANT` to a file of Python."""
    for text, path, _ in links(document):
        if not path.endswith(".py") or not re.fullmatch(r"`[\w.]+`", text) or text.strip("`").endswith(".py"):
            continue
        code = (document.parent / path).read_text()
        for name in text.strip("`").split("."):
            declared = rf"^\s*(?:class|def|async def) {name}\b|^{name}\b[^=\n]*=|^\s+self\.{name}\b[^=\n]*="
            assert re.search(declared, code, re.M), f"{path} declares no {name}"


def test_every_room_is_in_the_architecture() -> None:
    text = ARCHITECTURE.read_text()
    rooms = [path.parent.name for path in (ROOT / "src/penstock").glob("*/__init__.py")]
    assert [room for room in rooms if f"`{room}/`" not in text] == []
