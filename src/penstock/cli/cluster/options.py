"""What several commands of a cluster can be told."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.cluster.folder import DEFAULT
from penstock.cli.parser import DEFAULT_BOOTSTRAP, Parser, add_json, key_value, positive


def add_folder(parser: Parser) -> None:
    parser.add_argument("--data", metavar="DIR", type=Path, default=Path(DEFAULT), help=f"default: ./{DEFAULT}")


def add_settings(parser: Parser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings of every broker, in TOML")
    parser.add_argument(
        "--set", dest="changes", metavar="NAME=VALUE", type=key_value, action="append", default=[],
        help="a setting of every broker; repeatable",
    )  # fmt: skip


def add_reach(parser: Parser) -> None:
    default = f"the cluster in --data, or {DEFAULT_BOOTSTRAP}"
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT",
        help=f"a broker to ask, or several with commas (or $PENSTOCK_BOOTSTRAP; default: {default})",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="DIR", type=Path, default=Path(DEFAULT), help=f"a cluster on this machine (./{DEFAULT})"
    )


def add_moving(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would move")
    parser.add_argument(
        "--throttle", metavar="BYTES/S", type=positive, help="how fast each broker may send and receive"
    )
    add_json(parser)
    add_reach(parser)
