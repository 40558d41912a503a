"""Who reads what: the assignors that the coordinator itself runs (KIP-848).

Owns: the rules by which partitions are spread over the members of a consumer group.
Never: when that happens, or how members get from one assignment to the next.
"""

from __future__ import annotations

from penstock.groups.assignors.range import RangeAssignor
from penstock.groups.assignors.spec import Assignment, Assignor, MemberSpec, TopicShape
from penstock.groups.assignors.uniform import UniformAssignor

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec", "TopicShape"]

# The first is the one for groups that ask for none.
ASSIGNORS: dict[str, Assignor] = {"uniform": UniformAssignor(), "range": RangeAssignor()}
