"""The program of an initializer: reads its variables, fetches, and prints what it did."""

import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from gangsched.core.bounds import IGNORE_PATTERNS, INITIALIZER_S, STORED_BYTES, STORED_FILES
from gangsched.initializers.source import (
    CLAIM_MOUNT,
    MOUNTS,
    SCHEMES,
    Source,
    StorageError,
    parse_source,
    patterns,
)
from gangsched.initializers.target import Target
from gangsched.initializers.volume import copy_volume

WORKSPACE = Path("/workspace")
PARTS = ("dataset", "model")
CACHE = "cache://"
SECRETS = ("ACCESS_TOKEN", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY")

log = logging.getLogger("initializer")


def main(arguments: list[str], variables: Mapping[str, str]) -> int:
    """Fetch what STORAGE_URI names; return the exit code."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    if len(arguments) != 1 or arguments[0] not in PARTS:
        log.error("one argument is needed: %s", " or ".join(PARTS))
        return 2
    started_s = time.monotonic()
    timer = threading.Timer(INITIALIZER_S.most, _expire)
    timer.daemon = True
    timer.start()
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        most = STORED_BYTES.most if hard == resource.RLIM_INFINITY else min(STORED_BYTES.most, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        if _creates_leader_workers(variables):
            from gangsched.initializers import kubernetes, leader_workers  # noqa: PLC0415

            name = leader_workers.create_cache(variables, kubernetes.Api(variables))
            log.info("LeaderWorkerSet %s is available", name)
            return 0
        source, target = _fetch(arguments[0], variables)
    except Exception as error:  # noqa: BLE001 - a library may put a token into any error
        log.error("%s", redacted(f"{type(error).__name__}: {error}", variables))  # noqa: TRY400
        return 1
    place = f"{source.scheme}://{source.host}/{source.path}"
    log.info(
        "%s of %s: %d files, %d bytes, %.1f s",
        target.root,
        place,
        target.files,
        target.size,
        time.monotonic() - started_s,
    )
    return 0


def _creates_leader_workers(variables: Mapping[str, str]) -> bool:
    """Return whether the runtime wants a cache of a LeaderWorkerSet, as Kubeflow's does."""
    is_cache = (variables.get("STORAGE_URI") or "").startswith(CACHE)
    return is_cache and bool(variables.get("CACHE_IMAGE"))


def _fetch(part: str, variables: Mapping[str, str]) -> tuple[Source, Target]:
    uri = variables.get("STORAGE_URI")
    if not uri:
        raise StorageError(
            f"STORAGE_URI is not set; name a store in spec.initializer.{part}.storageUri: "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    source, variables = located(uri, variables)
    ignored = patterns(variables.get("IGNORE_PATTERNS") or "", IGNORE_PATTERNS.most)
    target = Target(WORKSPACE / part, STORED_FILES.most, STORED_BYTES.most, ignored)
    target.prepare()
    if source.scheme in ("file", "pvc"):
        mounted = Path(CLAIM_MOUNT if source.scheme == "pvc" else MOUNTS)
        copy_volume(mounted, source.path, target)
    elif source.scheme == "s3":
        from gangsched.initializers.objects import copy_objects, s3  # noqa: PLC0415

        copy_objects(s3(variables), source.host, source.path, target)
    else:
        from gangsched.initializers.hub import download  # noqa: PLC0415

        download(source, part, variables.get("ACCESS_TOKEN") or None, target)
    return source, target


def located(uri: str, variables: Mapping[str, str]) -> tuple[Source, Mapping[str, str]]:
    """Return the place that an address names, and the variables that say how to enter it.

    The address of a data cache, cache://SCHEMA/TABLE, is a name alone: METADATA_LOC has the place.

    Raises:
        StorageError: it is no place with a data set.

    """
    if not uri.startswith(CACHE):
        return parse_source(uri), variables
    place = variables.get("METADATA_LOC") or ""
    if place.startswith("s3a://"):
        place = f"s3://{place.removeprefix('s3a://')}"
    if place.endswith(".metadata.json"):
        raise StorageError(
            "METADATA_LOC names a table of Iceberg, which the data cache does not read; name a "
            "folder with Parquet files"
        )
    if not place:
        raise StorageError(
            "METADATA_LOC is not set; name the folder with the Parquet files of the data cache: "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    try:
        source = parse_source(place)
    except StorageError as error:
        raise StorageError(str(error).replace("STORAGE_URI", "METADATA_LOC")) from error
    role = variables.get("ROLE_ARN") or variables.get("IAM_ROLE") or ""
    return source, {**variables, "ROLE_ARN": role}


def redacted(text: str, variables: Mapping[str, str]) -> str:
    """Return a text without the values of tokens and keys."""
    for name in SECRETS:
        if value := variables.get(name):
            text = text.replace(value, f"[{name}]")
    return text


def _expire() -> None:
    log.error("not fetched within %d s", INITIALIZER_S.most)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
