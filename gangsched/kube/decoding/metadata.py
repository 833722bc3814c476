"""What every object says of itself: its key, its owner, its labels, its stored status."""

from typing import Any

import msgspec

from gangsched.api import keys
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import (
    GroupObject,
    Metadata,
    any_decoder,
    group_decoder,
)


def group_key(raw: bytes) -> tuple[str, str, str]:
    """Return namespace, name and uid of any object."""
    metadata = any_decoder.decode(raw).metadata
    return metadata.namespace, metadata.name, metadata.uid


def identity(raw: bytes) -> bytes:
    """Return an object without all but which one it is, and its labels and annotations of ours."""
    metadata = any_decoder.decode(raw).metadata
    kept = Metadata(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        labels=keys.ours(metadata.labels),
        annotations=keys.ours(metadata.annotations),
    )
    return msgspec.json.encode({"metadata": kept})


def is_owned(raw: bytes) -> bool:
    """Tell whether an object has an owner that controls it."""
    return any(owner.controller for owner in any_decoder.decode(raw).metadata.owner_references)


def stored_status(raw: bytes) -> dict[str, Any]:
    """Return the status of a group as it is stored."""
    return decode_group(raw).status


def labels(raw: bytes) -> dict[str, str]:
    """Return the labels of any object."""
    return dict(any_decoder.decode(raw).metadata.labels)


def decode_group(raw: bytes) -> GroupObject:
    """Read any object as metadata, spec and status.

    Raises:
        DecodeError: it is none.

    """
    try:
        return group_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"PodGroup: {error}") from error
