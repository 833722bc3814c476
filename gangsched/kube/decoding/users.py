"""The user of an object: the API server writes it at admission, and no user can change it."""

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from gangsched.api import names
from gangsched.core.bounds import LETTERS_OF_USER
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, KubeError, NotFound

log = logging.getLogger(__name__)

_ADMISSION = "/apis/admissionregistration.k8s.io"
_VERSIONS = ("v1", "v1beta1")
"""Versions of MutatingAdmissionPolicy: enabled since Kubernetes 1.36, before behind a gate."""

_ACCOUNT = "system:serviceaccount:"
_LOOK_EVERY_S = 30.0
_TRY_AGAIN_S = 1.0


def user_of(annotations: Mapping[str, str], namespace: str) -> str:
    """Return the user who created an object, or the empty string if the user is not known.

    A user who may create service accounts could pose as many users, and controllers act for other
    users. So all accounts of one namespace count as one user.
    """
    user = annotations.get(names.USER_ANNOTATION, "")
    if len(user) > LETTERS_OF_USER.most:
        return ""
    return f"system:serviceaccounts:{namespace}" if user.startswith(_ACCOUNT) else user


async def policies_served(client: KubeClient) -> str:
    """Return the version of MutatingAdmissionPolicy of an API server, or an empty string."""
    for version in _VERSIONS:
        try:
            served = msgspec.json.decode(await client.get(f"{_ADMISSION}/{version}"), type=_Served)
        except NotFound:
            continue
        if any(resource.name == "mutatingadmissionpolicies" for resource in served.resources):
            return version
    return ""


async def require_user_policy(client: KubeClient) -> None:
    """Check that the admission policy exists that records the user of a request.

    Raises:
        NotFound: no version of the policy exists.
        KubeError: the API server gave no answer.

    """
    for version in _VERSIONS:
        path = f"{_ADMISSION}/{version}/mutatingadmissionpolicybindings/{names.USER_POLICY}"
        try:
            await client.get(path)
        except NotFound:
            if version == _VERSIONS[-1]:
                raise
        else:
            return


class _Resource(msgspec.Struct):
    name: str = ""


class _Served(msgspec.Struct):
    resources: list[_Resource] = []


class Users:
    """Whether users are known: without the admission policy a user could write any user's name."""

    def __init__(self, client: KubeClient) -> None:
        self.known = False
        self._client = client

    async def refresh(self) -> None:
        """Read from the API server whether it writes the user at admission."""
        before = self.known
        while True:
            try:
                await require_user_policy(self._client)
            except (NotFound, Forbidden) as error:
                self.known = False
                if before:
                    log.warning("users are not known from now on: %s", error)
            except KubeError as error:
                log.warning("asking for the admission policy: %s", error)
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            else:
                self.known = True
            return

    async def run(self) -> None:
        """Call `refresh` periodically until cancelled: the policy may be applied later."""
        if not self.known:
            log.warning(
                "users are not known: MutatingAdmissionPolicyBinding %s is not there; all gangs "
                "count as one user's",
                names.USER_POLICY,
            )
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.refresh()
