"""Which messages a filter wants, and what of it a broker could be told."""

from __future__ import annotations

import pytest

from penstock.client.errors import SettingsError
from penstock.client.filtering import make_filter

EU, US, NONE = [("region", b"eu")], [("region", b"us")], [("other", b"eu")]


def test_a_value_a_set_of_values_and_several_names() -> None:
    one = make_filter({"region": "eu"})
    some = make_filter({"region": {"eu", b"us"}})
    both = make_filter({"region": "eu", "kind": "order"})
    assert one
    assert some
    assert both
    assert [one.accepts(each) for each in (EU, US, NONE, [])] == [True, False, False, False]
    assert [some.accepts(each) for each in (EU, US, NONE)] == [True, True, False]
    assert not both.accepts(EU)
    assert both.accepts([*EU, ("kind", b"order")])


def test_the_last_of_headers_with_one_name_counts() -> None:
    one = make_filter({"region": "eu"})
    assert one
    assert one.accepts([*US, *EU])
    assert not one.accepts([*EU, *US])
    assert not one.accepts([*EU, ("region", None)])


def test_terms_can_be_told_to_a_broker_and_a_function_can_not() -> None:
    terms, function = make_filter({"region": {"eu", "us"}}), make_filter(lambda headers: bool(headers))
    assert terms
    assert function
    assert terms.as_terms() == {"region": frozenset({b"eu", b"us"})}
    assert function.as_terms() is None
    assert function.accepts(EU)
    assert not function.accepts([])


@pytest.mark.parametrize("where", [{}, {"region": 5}, {5: "eu"}, {"region": [1]}, "region=eu"])
def test_what_is_no_filter_is_refused(where: object) -> None:
    with pytest.raises(SettingsError):
        make_filter(where)  # type: ignore[arg-type]
