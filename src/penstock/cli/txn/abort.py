"""`penstock txn abort`: by its id, or where it hangs.

By id, the coordinator is told of a new producer, which fences the old one and aborts what it had open; what two phases
commit is taken over first, so that no other transaction is aborted than the one that was looked at. If a sink of Spark
has prepared it, the sink is claimed then, and its decisions read once more: a driver may have come back while a person
was asked. A transaction that no coordinator knows of any more (one that hangs) is ended in its partition, by the marker
that is missing there.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, add_yes

if TYPE_CHECKING:
    from penstock.cli.connection import Connection
    from penstock.cli.txn.decided import Decided
    from penstock.protocol.messages.describe_transactions import TransactionState

EXAMPLES = """\
examples:
  penstock txn abort billing-1
  penstock txn abort --topic orders --partition 3 --offset 1042     one that hangs, by its first offset
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("id", metavar="ID", nargs="?", help="the transactional id")
    parser.add_argument("--topic", help="where a transaction hangs")
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset", type=int, help="its first offset there")
    parser.add_argument("--force", action="store_true", help="abort it although a sink has decided to commit it")
    add_yes(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.problem import usage

    place = (args.topic, args.partition, args.offset)
    if (args.id is None) != all(each is not None for each in place) or (args.id is not None and any(place)):
        raise usage("name a transactional id, or all of --topic, --partition and --offset.")
    connection = connect(args)
    return _abort_id(args, connection) if args.id is not None else _abort_hanging(args, connection)


def _abort_id(args: argparse.Namespace, connection: Connection) -> int:
    from penstock.cli.output import confirm, print_json
    from penstock.cli.raw import ask, check, coordinator_of
    from penstock.cli.txn.decided import claim_decided, read_decided
    from penstock.cli.txn.transactions import any_broker, described, end_prepared, is_two_phase
    from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

    state = described(connection, args.id)
    is_open = state.transaction_state == "Ongoing"
    if is_open and not args.force:
        _refuse_if_decided(read_decided(connection), state)
    if is_open:
        confirm(
            f"Abort the transaction of {args.id}? Its producer can't go on then, and must be started again.", args.yes
        )
    if is_open and is_two_phase(state):
        end_prepared(
            connection,
            state,
            commit=False,
            check_taken=None if args.force else lambda: _refuse_if_decided(claim_decided(connection, args.id), state),
        )
    elif is_open:
        request = InitProducerIdRequest(transactional_id=args.id, transaction_timeout_ms=state.transaction_timeout_ms)
        coordinator = coordinator_of(any_broker(connection), args.id)
        check(ask(coordinator, request, 4, InitProducerIdResponse).error_code, f"can't abort {args.id!r}")
    if args.json:
        print_json({"id": args.id, "aborted": is_open})
    else:
        print(f"Aborted the transaction of {args.id}." if is_open else f"{args.id} has no transaction open.")
    return 0


def _refuse_if_decided(decided: Decided, state: TransactionState) -> None:
    """The other transactions of its batch are committed, or will be: half of the batch would be lost."""
    from penstock.cli.problem import Problem

    name = state.transactional_id
    if by := decided.by(state):
        raise Problem(
            f"{name} is to be committed: {by} was decided so, and what it wrote would be lost.",
            f"Start its query again, or use 'penstock txn commit {name}'. --force aborts it all the same.",
        )


def _refuse_if_known(connection: Connection, producer_id: int) -> None:
    """What a coordinator knows of does not hang. Ended behind its back, its producer would believe it committed."""
    from penstock.cli.problem import Problem
    from penstock.cli.raw import address_of, ask
    from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

    request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[producer_id])
    for broker in connection.cluster.brokers.values():
        for known in ask(address_of(broker), request, 0, ListTransactionsResponse).transaction_states:
            name = known.transactional_id
            raise Problem(
                f"that transaction does not hang: it is {name}'s, and open.", f"Use 'penstock txn abort {name}'."
            )


def _abort_hanging(args: argparse.Namespace, connection: Connection) -> int:
    from penstock.cli.output import confirm, print_json
    from penstock.cli.problem import Problem
    from penstock.cli.raw import address_of, ask, check
    from penstock.protocol.messages import describe_producers, write_txn_markers

    leader = connection.topic(args.topic).partitions.get(args.partition)
    if leader is None:
        raise Problem(f"{args.topic} has no partition {args.partition}.")
    address = address_of(connection.cluster.brokers[leader.leader])
    asked = describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=args.topic, partition_indexes=[args.partition])]
    )
    answer = ask(address, asked, 0, describe_producers.DescribeProducersResponse).topics[0].partitions[0]
    check(answer.error_code, "can't look for its producer", answer.error_message)
    producer = next((p for p in answer.active_producers if p.current_txn_start_offset == args.offset), None)
    if producer is None:
        begun = sorted(p.current_txn_start_offset for p in answer.active_producers if p.current_txn_start_offset >= 0)
        known = f"Open there are those that begin at {', '.join(map(str, begun))}." if begun else "None is open there."
        raise Problem(f"no transaction of {args.topic}-{args.partition} begins at {args.offset}.", known)
    _refuse_if_known(connection, producer.producer_id)
    confirm(f"Abort what producer {producer.producer_id} has open in {args.topic}-{args.partition}?", args.yes)
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=args.topic, partition_indexes=[args.partition])],
    )
    written = ask(
        address,
        write_txn_markers.WriteTxnMarkersRequest(markers=[marker]),
        1,
        write_txn_markers.WriteTxnMarkersResponse,
    )
    check(written.markers[0].topics[0].partitions[0].error_code, "can't abort it")
    if args.json:
        print_json({"producer_id": producer.producer_id, "aborted": True})
    else:
        print(f"Aborted what producer {producer.producer_id} had open in {args.topic}-{args.partition}.")
    return 0
