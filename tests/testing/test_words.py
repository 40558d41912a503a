"""Lines for `python -m penstock.testing`, in words."""

from __future__ import annotations

import pytest

from penstock.testing import BadArgument
from penstock.testing.words import Word, words_of


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  topics \n", [Word("topics")]),
        ("advance minutes=10", [Word("advance"), Word("10", "minutes")]),
        ('p {"a": 1, "b": "} x"} [1, 2]', [Word("p"), Word('{"a": 1, "b": "} x"}'), Word("[1, 2]")]),
        ('p headers={"a": "b c"} x', [Word("p"), Word('{"a": "b c"}', "headers"), Word("x")]),
        ("p 'total=5' key='a b' key=", [Word("p"), Word("total=5"), Word("a b", "key"), Word("", "key")]),
        ('''p '{"a": 1}' "say \\"hi\\" \\n" it\\'s a'b c'd '' ''',
         [Word("p"), Word('{"a": 1}'), Word('say "hi" \\n'), Word("it's"), Word("ab cd"), Word("")]),
        ("p 5=5 a{1}", [Word("p"), Word("5=5"), Word("a{1}")]),
    ],
)  # fmt: skip
def test_words_are_parted_as_in_a_shell_and_json_as_it_is(line: str, words: list[Word]) -> None:
    assert words_of(line) == words


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("p {a: 1}", "is no JSON"),
        ('p {"a": 1}x', "a blank missing"),
        ("p 'open", "a quote is missing"),
        ("p open\\", "a quote is missing"),
        ("p " + "[" * 100_000, "is no JSON"),
    ],
)
def test_what_does_not_end_is_said(line: str, says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        words_of(line)
