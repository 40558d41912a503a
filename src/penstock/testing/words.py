"""A line of `python -m penstock.testing`, in words: parted and quoted as in a shell, but JSON needs no quotes.

    produce orders {"total": 5, "to": "ada"} 'total=5' key=ada headers={"region": "eu"}

What begins with a brace or a bracket is JSON, up to where that ends, and stays as it is written. `name=` before a word
makes it an argument by name, unless that is in quotes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from penstock.testing.arguments import BadArgument

_NAME = re.compile(r"[A-Za-z_]\w*=")
_PIECE = re.compile(r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)|(?P<plain>[^\s'"\\]+)""")
_ESCAPED = re.compile(r"""\\(["\\])""")


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    name: str | None = None


def words_of(line: str) -> list[Word]:
    found = []
    at = _skip_blanks(line, 0)
    while at < len(line):
        named = _NAME.match(line, at)
        at = named.end() if named else at
        text, at = _json(line, at) if line[at : at + 1] in ("{", "[") else _word(line, at)
        found.append(Word(text, named[0][:-1] if named else None))
        at = _skip_blanks(line, at)
    return found


def _skip_blanks(line: str, at: int) -> int:
    return len(line) - len(line[at:].lstrip())


def _json(line: str, begin: int) -> tuple[str, int]:
    try:
        _, end = json.JSONDecoder().raw_decode(line, begin)
    except (ValueError, RecursionError) as error:
        raise BadArgument(f"{line[begin:].strip()} is no JSON ({error}): put it in quotes if it is text") from None
    if line[end : end + 1].strip():
        raise BadArgument(f"behind {line[begin:end]} there is a blank missing: put all of it in quotes if it is text")
    return line[begin:end], end


def _word(line: str, at: int) -> tuple[str, int]:
    pieces = []
    while at < len(line) and not line[at].isspace():
        piece = _PIECE.match(line, at)
        if piece is None:
            raise BadArgument(f"what begins with {line[at:].strip()} does not end: a quote is missing")
        escaped = piece["double"]
        pieces.append(_ESCAPED.sub(r"\1", escaped) if escaped is not None else _first(piece))
        at = piece.end()
    return "".join(pieces), at


def _first(piece: re.Match[str]) -> str:
    return next(text for text in (piece["single"], piece["escaped"], piece["plain"]) if text is not None)
