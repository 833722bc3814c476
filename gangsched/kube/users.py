"""Who asked for an object: what the API server's admission wrote on it, and nobody else's word."""

import asyncio
import logging
from collections.abc import Mapping

from gangsched.api import names
from gangsched.core.bounds import LETTERS_OF_USER
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Forbidden, KubeError, NotFound

log = logging.getLogger(__name__)

POLICY = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/{names.USER_POLICY}"
)
_ACCOUNT = "system:serviceaccount:"
_LOOK_EVERY_S = 30.0
_TRY_AGAIN_S = 1.0


def asked_by(annotations: Mapping[str, str], namespace: str) -> str:
    """Return who asked for an object, or nothing where that is not known.

    Whoever may make service accounts could be as many users as he likes, and controllers act for
    others: what accounts ask for in one namespace, one user asks for.
    """
    user = annotations.get(names.USER_ANNOTATION, "")
    if len(user) > LETTERS_OF_USER.most:
        return ""
    return f"system:serviceaccounts:{namespace}" if user.startswith(_ACCOUNT) else user


class Users:
    """Tells whether users are known: without the admission policy anybody writes what he likes."""

    def __init__(self, client: KubeClient) -> None:
        self.known = False
        self._client = client

    async def look(self) -> None:
        """Ask the API server whether it notes who asks."""
        before = self.known
        while True:
            try:
                await self._client.get(POLICY)
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
            await self.look()
