"""What viewers do with gangs from the pages: with their own rights, through the API server."""

from dataclasses import dataclass

from gangsched.api.names import GROUP, VERSION
from gangsched.api.timestamps import rfc3339
from gangsched.config import ConfigError
from gangsched.core.model.text import whole
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.userjobs import actions
from gangsched.userjobs.finding import UserJob, find_jobs, job_of_gang
from gangsched.web.sessions import ViewerSession

_STARTED = ("Placed", "Binding", "Reserved")
_NAME_LETTERS_MAX = 253
_HOURS_MAX = 365 * 24.0
_RESERVATIONS = f"/apis/{GROUP}/{VERSION}/reservations"
_TRIES = 2


class ActionError(Exception):
    """An action was refused; the message is for the viewer."""


@dataclass(frozen=True, slots=True)
class GangAction:
    """What a viewer asks for: an action, the gang or job, and the value that it needs."""

    kind: str
    gang: str
    value: str = ""


class GangActions:
    """Carries out actions on a live cluster."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def act(self, session: ViewerSession, action: GangAction, state: str) -> str:
        """Carry out an action on a gang in a state; return a sentence.

        Raises:
            ActionError: it is unknown, or the API server refused it.

        """
        namespace, _, name = action.gang.partition("/")
        if not namespace or not name or len(action.gang) > 2 * _NAME_LETTERS_MAX:
            raise ActionError("Name the gang as NAMESPACE/NAME.")
        try:
            async with self._client(session) as client:
                job = await self._job(client, namespace, name, action.kind)
                match action.kind:
                    case "hold":
                        return await actions.hold_job(client, job, runs=state in _STARTED)
                    case "release":
                        return await actions.release_job(client, job)
                    case "cancel":
                        return await actions.cancel_job(client, job)
                    case "priority":
                        if not action.value or len(action.value) > _NAME_LETTERS_MAX:
                            raise ActionError("Name a PriorityClass.")
                        return await actions.set_priority(client, job, action.value)
        except (ConfigError, KubeError) as error:
            raise ActionError(str(error)) from error
        raise ActionError(f"There is no action {action.kind!r}.")

    async def _job(self, client: KubeClient, namespace: str, name: str, kind: str) -> UserJob:
        """Return the job of a gang; a held job has no gang, so its own name is enough."""
        job = await job_of_gang(client, namespace, name) if kind != "release" else None
        if job is not None:
            return job
        (found, *_) = await find_jobs(client, namespace, name)
        return found

    async def book(self, session: ViewerSession, text: str, now_s: float) -> str:
        """Create a Reservation of COUNT:HOURS FROM NOW:HOURS for no gang; return a sentence.

        Raises:
            ActionError: the text is malformed, or the API server refused it.

        """
        number, _, times = text.partition(":")
        after, _, length = times.partition(":")
        count = whole(number)
        try:
            after_h, length_h = float(after), float(length)
        except ValueError:
            after_h = length_h = -1.0
        if not count or not 0 <= after_h <= _HOURS_MAX or not 0 < length_h <= _HOURS_MAX:
            raise ActionError("A reservation needs a number of nodes, a start and a length.")
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Reservation",
            "metadata": {"generateName": "pages-"},
            "spec": {
                "start": rfc3339(now_s + after_h * 3600),
                "durationSeconds": length_h * 3600,
                "count": count,
            },
        }
        try:
            async with self._client(session) as client:
                await client.create(_RESERVATIONS, body)
        except KubeError as error:
            raise ActionError(str(error)) from error
        return f"{count} nodes are set aside in {after_h:g} h, for {length_h:g} h."

    def _client(self, session: ViewerSession) -> KubeClient:
        """Return a client with the viewer's token; the code has the rights of the kubeconfig."""
        return KubeClient(self._access, _TRIES, token=session.token)
