"""What keys and values are: anything, where a program does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Type checkers bring the TypeVar that has defaults (PEP 696); Python itself does from 3.13 on.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
