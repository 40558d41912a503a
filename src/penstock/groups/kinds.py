"""The kinds of groups, and what they have in common: a name, offsets, and that both are called consumer groups.

The rules of membership ask which kind it is; the rules of offsets mostly do not.
"""

from __future__ import annotations

from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Group

AnyGroup = Group | ConsumerGroup
