"""What several commands of a cluster can be told."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.parser import DEFAULT_CLUSTER, Parser, add_bootstrap, add_json, key_value, positive


def add_folder(parser: Parser) -> None:
    parser.add_argument(
        "--data", metavar="DIR", type=Path, default=Path(DEFAULT_CLUSTER), help=f"default: ./{DEFAULT_CLUSTER}"
    )


def add_settings(parser: Parser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings of every broker, in TOML")
    parser.add_argument(
        "--set", dest="changes", metavar="NAME=VALUE", type=key_value, action="append", default=[],
        help="a setting of every broker; repeatable",
    )  # fmt: skip


def add_reach(parser: Parser) -> None:
    add_bootstrap(parser)
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help=f"the folder of a cluster on this machine (default: ./{DEFAULT_CLUSTER})",
    )


def add_moving(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would move")
    parser.add_argument(
        "--throttle", metavar="BYTES/S", type=positive, help="how fast each broker may send and receive"
    )
    add_json(parser)
    add_reach(parser)
