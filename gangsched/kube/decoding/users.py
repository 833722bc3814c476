"""Who asked for an object: what the API server's admission wrote on it, and nobody else's word."""

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
"""Those of MutatingAdmissionPolicy: on from Kubernetes 1.36 on, and before it behind a gate."""

_ACCOUNT = "system:serviceaccount:"
_LOOK_EVERY_S = 30.0
_TRY_AGAIN_S = 1.0


def user_of(annotations: Mapping[str, str], namespace: str) -> str:
    """Return who asked for an object, or nothing where that is not known.

    Whoever may make service accounts could be as many users as he likes, and controllers act for
    others: what accounts ask for in one namespace, one user asks for.
    """
    user = annotations.get(names.USER_ANNOTATION, "")
    if len(user) > LETTERS_OF_USER.most:
        return ""
    return f"system:serviceaccounts:{namespace}" if user.startswith(_ACCOUNT) else user


async def policies_served(client: KubeClient) -> str:
    """Return the version of MutatingAdmissionPolicy that an API server serves, or nothing."""
    for version in _VERSIONS:
        try:
            served = msgspec.json.decode(await client.get(f"{_ADMISSION}/{version}"), type=_Served)
        except NotFound:
            continue
        if any(one.name == "mutatingadmissionpolicies" for one in served.resources):
            return version
    return ""


async def require_user_policy(client: KubeClient) -> None:
    """Ask for the policy by which the API server notes who asks, in any version.

    Raises:
        NotFound: it is not there.
        KubeError: that could not be asked.

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
    """Tells whether users are known: without the admission policy anybody writes what he likes."""

    def __init__(self, client: KubeClient) -> None:
        self.known = False
        self._client = client

    async def refresh(self) -> None:
        """Ask the API server whether it notes who asks."""
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
        """Look again and again until cancelled: the policy may come after us."""
        if not self.known:
            log.warning(
                "users are not known: MutatingAdmissionPolicyBinding %s is not there; all gangs "
                "count as one user's",
                names.USER_POLICY,
            )
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.refresh()
