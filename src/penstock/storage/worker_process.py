"""The inside of the worker process: takes jobs from its standard input, and gives results on its standard output.

Both ways a message is

    | number of the job u64 | length u64 | pickle |

of (function, arguments) on the way in and of (succeeded, result or error) on the way out. When the input ends, the
broker is gone or has no more work: the process ends at once, whatever it was doing. Jobs run in a few threads: a short
one behind a compaction shares the processor with it and does not wait for its end.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

HEAD = struct.Struct(">QQ")
JOBS_AT_ONCE = 4
NICENESS = 5  # the broker's loop goes first


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the broker too, which ends its worker in time
    os.nice(NICENESS)
    sys.setswitchinterval(0.001)
    jobs = sys.stdin.buffer
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not do so into the results
    lock = threading.Lock()
    threads = ThreadPoolExecutor(JOBS_AT_ONCE, thread_name_prefix="job")
    while len(head := jobs.read(HEAD.size)) == HEAD.size:
        number, length = HEAD.unpack(head)
        threads.submit(_work, number, jobs.read(length), results, lock)
    os._exit(0)


def _work(number: int, job: bytes, results: BinaryIO, lock: threading.Lock) -> None:
    try:
        function, arguments = pickle.loads(job)
        outcome: tuple[bool, Any] = (True, function(*arguments))
        answer = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        answer = _failure(error)
    with lock:
        results.write(HEAD.pack(number, len(answer)))
        results.write(answer)
        results.flush()


def _failure(error: BaseException) -> bytes:
    try:
        answer = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        pickle.loads(answer)  # some exceptions can be written and not read
    except Exception:
        answer = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")), pickle.HIGHEST_PROTOCOL)
    return answer


if __name__ == "__main__":
    main()
