"""Copies objects of a store with the interface of S3."""

from collections.abc import Iterator, Mapping

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, S3FileSystem

from gangsched.initializers.source import StorageError
from gangsched.initializers.target import Target

_CHUNK = 2**20
_CONNECT_S = 20.0
_REQUEST_S = 120.0


def s3(variables: Mapping[str, str]) -> S3FileSystem:
    """Return the store that the variables of Kubeflow's initializers describe.

    Raises:
        StorageError: ENDPOINT is no address.

    """
    options = {
        "access_key": variables.get("ACCESS_KEY_ID") or None,
        "secret_key": variables.get("SECRET_ACCESS_KEY") or None,
        "region": variables.get("REGION") or None,
        "role_arn": variables.get("ROLE_ARN") or None,
    }
    if endpoint := variables.get("ENDPOINT"):
        scheme, separator, address = endpoint.partition("://")
        if not separator or scheme not in ("http", "https") or not address.strip("/"):
            raise StorageError("ENDPOINT is no address; http://HOST:PORT or https://… is allowed")
        options |= {"scheme": scheme, "endpoint_override": address.rstrip("/")}
    given = {name: value for name, value in options.items() if value is not None}
    return S3FileSystem(connect_timeout=_CONNECT_S, request_timeout=_REQUEST_S, **given)


def copy_objects(store: FileSystem, bucket: str, prefix: str, target: Target) -> None:
    """Copy the objects below a prefix, or the one object of that name.

    Raises:
        StorageError: there is none, or one is not allowed.

    """
    place = f"{bucket}/{prefix}".rstrip("/")
    (info,) = store.get_file_info([place])
    if info.type == FileType.File:
        _copy_object(store, info, place.rpartition("/")[2], target)
        return
    listed = store.get_file_info(FileSelector(place, allow_not_found=True, recursive=True))
    files = [info for info in listed if info.type == FileType.File]
    if not files:
        raise StorageError(f"s3://{place} has no objects")
    for info in sorted(files, key=lambda item: str(item.path)):
        name = str(info.path).removeprefix(f"{place}/")
        if not target.leaves_out(name):
            _copy_object(store, info, name, target)


def _copy_object(store: FileSystem, info: FileInfo, name: str, target: Target) -> None:
    with store.open_input_stream(info.path) as stream:
        target.write(name, _chunks(stream), int(info.size))


def _chunks(stream: object) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):  # type: ignore[attr-defined]
        yield chunk
