"""The programs of head and worker: read their variables, and serve until they are stopped."""

import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from gangsched.core.bounds import CACHE_WORKERS
from gangsched.datacache.head import Head
from gangsched.datacache.protocol import PORT, CacheError, Join, checked_key
from gangsched.datacache.table import CachedTable
from gangsched.datacache.worker import Heartbeat, Worker

FOLDER = Path("/workspace/dataset")
ROLES = ("head", "worker")

_SHARE_OF_MEMORY = 2
_MEMORY = 2**30

log = logging.getLogger("datacache")


def main(arguments: list[str], variables: Mapping[str, str]) -> int:
    """Serve; return the exit code."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    if len(arguments) != 1 or arguments[0] not in ROLES:
        log.error("one argument is needed: %s", " or ".join(ROLES))
        return 2
    try:
        key = checked_key(variables.get("CACHE_KEY"))
        workers = worker_addresses(variables)
        server, heartbeat = _serve(arguments[0], key, workers, variables)
    except CacheError as error:
        log.error("%s", error)  # noqa: TRY400 - the sentence says what is wrong
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.shutdown())
    server.serve()
    if heartbeat is not None:
        heartbeat.stop()
    return 0


def _serve(
    role: str, key: str, workers: list[str], variables: Mapping[str, str]
) -> tuple[Head | Worker, Heartbeat | None]:
    address = f"grpc://0.0.0.0:{PORT}"
    table = CachedTable(FOLDER, memory(variables))
    if role == "head":
        head = Head(address, key, table, [f"grpc://{worker}" for worker in workers])
        log.info("%d rows for %d workers", table.rows, len(workers))
        return head, None
    number = worker_number(variables, len(workers))
    groups = table.fill(number, len(workers))
    worker = Worker(address, key, table)
    heartbeat = Heartbeat(
        f"grpc://{variables.get('CACHE_ADDRESS', '')}", key, Join(table.version, number)
    )
    heartbeat.start()
    log.info("worker %d of %d: %d row groups in memory", number, len(workers), groups)
    return worker, heartbeat


def worker_addresses(variables: Mapping[str, str]) -> list[str]:
    """Return the addresses of all workers, by their numbers.

    Raises:
        CacheError: there are none, or too many.

    """
    addresses = [item for item in variables.get("CACHE_WORKERS", "").split(",") if item]
    if not 1 <= len(addresses) <= CACHE_WORKERS.most:
        raise CacheError(
            f"CACHE_WORKERS has {len(addresses)} addresses; 1 to {CACHE_WORKERS.most}, separated "
            "by commas, are allowed"
        )
    return addresses


def worker_number(variables: Mapping[str, str], workers: int) -> int:
    """Return the number of this worker.

    Raises:
        CacheError: it is no number of a worker.

    """
    text = variables.get("JOB_COMPLETION_INDEX", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < workers):
        raise CacheError(f"JOB_COMPLETION_INDEX is {text[:40]!r}; 0 to {workers - 1} is allowed")
    return int(text)


def memory(variables: Mapping[str, str]) -> int:
    """Return how many bytes of rows to keep: half of what the pod may use."""
    text = variables.get("MEMORY_LIMIT", "")
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 19):
        return _MEMORY
    return max(int(text) // _SHARE_OF_MEMORY, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
