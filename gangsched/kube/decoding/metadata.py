"""The fields that every object has: key, owner, labels, stored status."""

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


def decode_group(raw: bytes) -> GroupObject:
    """Read the metadata, spec and status of any object.

    Raises:
        DecodeError: the bytes are no such object.

    """
    try:
        return group_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"object: {error}") from error


class ApiObject:
    """An object as the API wrote it; its bytes are decoded once, when a field is first read."""

    __slots__ = ("_group", "_metadata", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._group: GroupObject | None = None
        self._metadata: Metadata | None = None

    @property
    def group(self) -> GroupObject:
        """Metadata, spec and status.

        Raises:
            DecodeError: the object has no such parts.

        """
        if self._group is None:
            self._group = decode_group(self.raw)
            self._metadata = self._group.metadata
        return self._group

    @property
    def metadata(self) -> Metadata:
        """The metadata alone; a caller that needs `group` too reads `group` first."""
        if self._metadata is None:
            self._metadata = any_decoder.decode(self.raw).metadata
        return self._metadata

    @property
    def is_owned(self) -> bool:
        """Whether an owner controls the object."""
        return any(owner.controller for owner in self.metadata.owner_references)

    def identity(self) -> bytes:
        """Return an object with only the key, and the labels and annotations of gangsched.io."""
        metadata = self.metadata
        kept = Metadata(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            labels=keys.ours(metadata.labels),
            annotations=keys.ours(metadata.annotations),
        )
        return msgspec.json.encode({"metadata": kept})
