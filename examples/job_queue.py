"""A job queue with several workers: each job is done by one of them, and one that fails is tried again.

Run it while a broker runs: `python examples/job_queue.py`, with HOST:PORT in PENSTOCK_BOOTSTRAP if that is not
127.0.0.1:9092. Workers are threads here, each with a Queue of its own; in real life they are processes on several
machines, and nothing else changes. Each partition has one worker at a time, and a queue
has six of them if it is not told otherwise.
"""

import threading
import time
import uuid
from collections import Counter

from penstock import Queue, QueueEmpty, Retry, fixed

NAME = f"thumbnails-{uuid.uuid4().hex[:8]}"
JOBS = 60
WORKERS = 3


class CameraBusy(Exception):
    pass


class Worker(threading.Thread):
    def __init__(self, failed: set[int], done: list[int]) -> None:
        super().__init__()
        self.failed = failed
        self.done = done
        self.count = 0

    def run(self) -> None:
        soon = {"heartbeat.interval.ms": 300}  # how soon a worker learns that another has come; 3 s if not set
        with Queue(NAME, retry=Retry(attempts=3, backoff=fixed("500ms")), consumer_settings=soon) as queue:
            while True:
                try:
                    with queue.get(timeout=1) as job:
                        self.work(job.value["picture"])
                except CameraBusy:
                    pass  # it comes again after half a second, to whoever is free
                except QueueEmpty:
                    if len(self.done) >= JOBS:
                        return

    def work(self, picture: int) -> None:
        if picture % 20 == 0 and picture not in self.failed:
            self.failed.add(picture)
            raise CameraBusy
        time.sleep(0.01)
        self.done.append(picture)
        self.count += 1


def main() -> None:
    failed: set[int] = set()
    done: list[int] = []
    workers = [Worker(failed, done) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    with Queue(NAME) as queue:
        for picture in range(1, JOBS + 1):
            queue.put({"picture": picture})
            time.sleep(0.03)

    for number, worker in enumerate(workers, start=1):
        worker.join()
        print(f"worker {number} did {worker.count} jobs")
    times = Counter(done)
    print(f"{len(times)} jobs were done, {sum(count > 1 for count in times.values())} of them twice")
    print(f"{len(failed)} needed a second attempt")


main()
