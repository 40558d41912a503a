"""Clients in other languages: small programs of ours in Go and Node.js, and kcat as it comes.

They are built in the cache folder, from what their package managers fetch; a language that is not installed is skipped.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bench.jars import cache

from interop.checks import check
from interop.site import Failed, Missing, Output, Site

HERE = Path(__file__).parent
BUILD_TIMEOUT_S = 300.0
KAFKAJS = "kafkajs@2.2.4"


def program(name: str, *others: str) -> str:
    for each in (name, *others):
        if found := shutil.which(each):
            return found
    raise Missing(f"{name} is not installed")


def built(output: Output) -> Output:
    """Packages that can't be fetched are no fault of the broker's."""
    if output.code:
        raise Missing(f"it could not be built: {output.text.strip().splitlines()[-1] if output.text.strip() else '?'}")
    return output


def go_program(site: Site, name: str) -> str:
    target = cache() / f"interop-{name}"
    command = (program("go"), "build", "-buildvcs=false", "-o", str(target), f"./{name}")
    built(site.run(*command, cwd=HERE / "go", timeout_s=BUILD_TIMEOUT_S))
    return str(target)


@check("Go franz-go")
def produces_consumes_and_administers_with_franz(site: Site) -> None:
    site.run(go_program(site, "franz"), site.address, site.fresh("franz")).expect("ok group and topic are deleted")


@check("Go sarama")
def produces_consumes_and_administers_with_sarama(site: Site) -> None:
    site.run(go_program(site, "sarama"), site.address, site.fresh("sarama")).expect("ok group and topic are deleted")


@check("Node.js kafkajs")
def produces_consumes_and_administers_with_kafkajs(site: Site) -> None:
    node, npm = program("node"), program("npm")
    folder = cache() / "interop-node"
    if not (folder / "node_modules").exists():
        folder.mkdir(exist_ok=True)
        install = (npm, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", KAFKAJS)
        built(site.run(*install, cwd=folder, timeout_s=BUILD_TIMEOUT_S))
    environment = {**os.environ, "NODE_PATH": str(folder / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    script = str(HERE / "node" / "kafkajs.js")
    site.run(node, script, site.address, site.fresh("kafkajs"), env=environment).expect(
        "ok group and topic are deleted"
    )


@check("kcat")
def produces_and_consumes_with_kcat(site: Site) -> None:
    kcat, topic = program("kcat", "kafkacat"), site.topic(partitions=2)
    address = ("-b", site.address, "-t", topic)
    site.run(kcat, *address, "-P", "-K:", "-H", "source=kcat", "-z", "lz4", typed="a:1\nb:2\nc:3\n").expect()
    read = site.run(kcat, *address, "-C", "-e", "-q", "-f", "%k=%s %h\\n").expect()
    if sorted(read.lines()) != ["a=1 source=kcat", "b=2 source=kcat", "c=3 source=kcat"]:
        raise read.failure("three messages, each with its key and its header")
    site.run(kcat, "-b", site.address, "-L").expect(f'topic "{topic}" with 2 partitions')
    site.run(kcat, "-b", site.address, "-Q", "-t", f"{topic}:0:-1").expect(rf"{topic} \[0\] offset \d")
    group = site.run(kcat, "-b", site.address, "-G", site.fresh("group"), "-e", "-q", "-o", "beginning", topic)
    if sorted(group.expect().lines()) != ["1", "2", "3"]:
        raise Failed(f"a group should read all three messages, not {group.lines()}")
