"""Writes to the API server on behalf of one owner, during one step.

Each change and each deletion names the object's uid, so that it never reaches a successor of the
same name. What the API server answers is recorded at once, before the watch shows it.
"""

from contextlib import suppress
from typing import Any

import msgspec

from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import Ref
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.kube.status.events import ObjectRef, post_event
from gangsched.operators.api_objects import (
    collection,
    delete_object,
    owned_by,
    owner_name,
    owner_uid,
    still_exists,
)
from gangsched.operators.controllers.owned_objects import OwnedObjects
from gangsched.operators.job_kind import BlockedError


class ApiWriter:
    """Creates, changes and deletes the objects of one owner; writes its status and its Events."""

    def __init__(
        self, client: KubeClient, owned: OwnedObjects[Any], owner: ObjectRef, *, names_failed: bool
    ) -> None:
        """With `names_failed`, the Event of a failed creation names the object."""
        self.client = client
        self.owner = owner
        self._owned = owned
        self._emitted = owned.emitted_events  # a successor of the name has its own
        self._names_failed = names_failed

    # -- the owner ----------------------------------------------------------------------------

    async def owner_exists(self) -> bool:
        """Return whether the owner still exists."""
        return await still_exists(self.client, self._owner_path, self.owner.uid)

    async def write_status(self, before: Json, status: Json) -> bool:
        """Replace the owner's status; return whether the owner still exists.

        The new status was derived from `before`: a key that was added since then is not removed.
        """
        # A merge patch keeps absent keys: set those to null that have to be removed.
        absent = {key: None for key in before if key not in status}
        body = {"metadata": {"uid": self.owner.uid}, "status": status | absent}
        try:
            answer = await self.client.patch(f"{self._owner_path}/status", body)
        except NotFound:
            return False
        self._owned.merge_owner_response(msgspec.json.decode(answer))
        return True

    async def delete_owner(self) -> None:
        """Delete the owner; the garbage collector deletes its parts."""
        await delete_object(self.client, self._owner_path, self.owner.uid)

    async def emit(self, event: JobEvent) -> None:
        """Write an Event about the owner, unless it was written before."""
        if self._emitted.is_news(event):
            await post_event(self.client, self.owner, event.type, event.reason, event.message)

    # -- its parts ----------------------------------------------------------------------------

    async def create_part(self, document: Json) -> None:
        """Create a part; the watch of its kind reports its later states.

        Raises:
            BlockedError: its name is taken.
            KubeError: the API server did not create it.

        """
        answer = await self.create(document)
        self._owned.merge_part_response((document["kind"], document["metadata"]["name"]), answer)

    async def patch_part(self, api_version: str, ref: Ref, change: Json) -> None:
        """Change a part that is known."""
        known = self._owned.parts.get(ref)
        if known is not None:
            answer = await self.patch(api_version, ref, known["metadata"]["uid"], change)
            self._owned.merge_part_response(ref, answer)

    async def patch_part_status(self, api_version: str, ref: Ref, status: Json) -> None:
        """Change the status of a part that is known, if it still exists."""
        known = self._owned.parts.get(ref)
        if known is None:
            return
        body = {"metadata": {"uid": known["metadata"]["uid"]}, "status": status}
        with suppress(NotFound):
            answer = await self.client.patch(f"{self._path(api_version, ref)}/status", body)
            self._owned.merge_part_response(ref, msgspec.json.decode(answer))

    async def delete_part(self, api_version: str, ref: Ref, policy: str = "Background") -> bool:
        """Delete a part if it is known; return whether it was known."""
        known = self._owned.parts.get(ref)
        if known is None:
            return False
        await self.delete(api_version, ref, known["metadata"]["uid"], policy)
        return True

    # -- any object ---------------------------------------------------------------------------

    async def create(self, document: Json) -> Json:
        """Create an object that the owner controls; return it, also if it existed already.

        Raises:
            BlockedError: its name is taken.
            KubeError: the API server did not create it.

        """
        kind, name = document["kind"], document["metadata"]["name"]
        path = collection(document["apiVersion"], kind, self.owner.namespace)
        try:
            answer: Json = msgspec.json.decode(
                await self.client.create(path, owned_by(document, self.owner))
            )
        except Conflict:
            answer = msgspec.json.decode(await self.client.get(object_path(path, name)))
            if owner_uid(answer) != self.owner.uid:
                raise await self._name_taken(kind, name, owner_name(answer)) from None
        except KubeError as error:
            what = f" {kind} {name}" if self._names_failed else ""
            message = f"Error creating{what}: {error}"
            await self.emit(JobEvent("Warning", f"FailedCreate{kind}", message))
            raise
        return answer

    async def create_unowned(self, document: Json) -> None:
        """Create an object that outlives the owner, unless it exists."""
        metadata = document["metadata"] | {"namespace": self.owner.namespace}
        path = collection(document["apiVersion"], document["kind"], self.owner.namespace)
        with suppress(Conflict):
            await self.client.create(path, document | {"metadata": metadata})

    async def read(self, api_version: str, ref: Ref) -> Json:
        """Return an object as it is stored.

        Raises:
            KubeError: it does not exist, or the API server gave no answer.

        """
        body: Json = msgspec.json.decode(await self.client.get(self._path(api_version, ref)))
        return body

    async def patch(self, api_version: str, ref: Ref, uid: str, change: Json) -> Json:
        """Change an object; return it.

        Raises:
            KubeError: it was not changed.

        """
        body = change | {"metadata": change.get("metadata", {}) | {"uid": uid}}
        path = self._path(api_version, ref)
        answer: Json = msgspec.json.decode(await self.client.patch(path, body))
        return answer

    async def delete(
        self, api_version: str, ref: Ref, uid: str, policy: str = "Background"
    ) -> None:
        """Delete the object with a uid, if it still exists."""
        await delete_object(self.client, self._path(api_version, ref), uid, policy)

    async def _name_taken(self, kind: str, name: str, holder: str) -> BlockedError:
        """Report that another object has a name; the garbage collector deletes earlier parts."""
        message = f"{kind} {name} exists already (owner: {holder}); give this job another name"
        if holder != f"{self.owner.kind} {self.owner.name}":
            await self.emit(JobEvent("Warning", "NameTaken", message))
        return BlockedError(message)

    def _path(self, api_version: str, ref: Ref) -> str:
        kind, name = ref
        return object_path(collection(api_version, kind, self.owner.namespace), name)

    @property
    def _owner_path(self) -> str:
        return self._path(self.owner.api_version, (self.owner.kind, self.owner.name))
