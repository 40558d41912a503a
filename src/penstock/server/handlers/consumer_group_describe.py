"""ConsumerGroupDescribe: state, epochs, members and assignments of consumer groups (KIP-848)."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from penstock.server.context import Call, Context
from penstock.server.group_calls import ask_each
from penstock.server.group_protocols import check_consumer_protocol, show_operations


async def handle(context: Context, call: Call[ConsumerGroupDescribeRequest]) -> ConsumerGroupDescribeResponse:
    check_consumer_protocol(context)
    groups: list[DescribedGroup] = await ask_each(
        context,
        call.request.group_ids,
        lambda ticket, owned: commands.DescribeConsumerGroups(ticket, owned),
        lambda group_id, code: DescribedGroup(group_id=group_id, error_code=code),
    )
    if call.request.include_authorized_operations:
        show_operations(groups)
    return ConsumerGroupDescribeResponse(groups=groups)
