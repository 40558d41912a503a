"""`python -m tests.matrix.launch NAMESPACE COMMAND...`: becomes the command, in that network ('-': in this one).

The process ends with whoever started it, however that one ends: no test leaves a broker behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
NAMESPACES = Path("/run/netns")


def die_with_parent() -> None:
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with (NAMESPACES / namespace).open() as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), namespace)


def main() -> None:
    namespace, *command = sys.argv[1:]
    die_with_parent()
    if namespace != "-":
        enter(namespace)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
