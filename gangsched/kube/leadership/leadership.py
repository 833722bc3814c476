"""Leadership: the process acts while it holds the Lease, and ends when it loses the Lease."""

import asyncio
import threading

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import LeadershipLostError
from gangsched.kube.leadership.lease import Election


class Leadership:
    """Whether this process may act: always without an election, else while it holds the Lease."""

    def __init__(self, election: Election | None) -> None:
        self.begun = asyncio.Event()
        self._election = election
        self._over = False

    def leads(self) -> bool:
        """Return whether this process may act now."""
        if self._over:
            return False
        return self._election.leads() if self._election is not None else True

    async def end(self, client: KubeClient) -> None:
        """Stop acting, and release the Lease before the slow shutdown, so that another may lead."""
        self._over = True
        if self._election is not None:
            await self._election.release(client)

    async def begin(self) -> None:
        """Wait until this process may act."""
        if self._election is not None:
            await self._election.acquire()
        self.begun.set()

    async def keep(self, client: KubeClient) -> None:
        """Return never.

        The Lease is renewed by a thread of its own, through a client of its own that is not open
        yet: reading a large cluster keeps this loop busy for seconds at a time. Whether this loop
        lives at all is the liveness probe's to ask.

        Raises:
            LeadershipLostError: this process may act no more.

        """
        await self.begun.wait()
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._election is not None:
            renewing = threading.Thread(
                target=self._renew, args=(self._election, client, lost), daemon=True
            )
            renewing.start()
        await lost

    def _renew(self, election: Election, client: KubeClient, lost: "asyncio.Future[None]") -> None:
        async def hold() -> None:
            async with client:
                election.through(client)
                await election.hold()

        try:
            asyncio.run(hold())
        except Exception as error:  # noqa: BLE001 -- whatever ends the renewals, ends the leading
            if not self._over:
                why = error if isinstance(error, LeadershipLostError) else _lost_by(error)
                lost.get_loop().call_soon_threadsafe(_fail, lost, why)


def _lost_by(error: Exception) -> LeadershipLostError:
    return LeadershipLostError(f"the Lease cannot be renewed: {error!r}")


def _fail(future: "asyncio.Future[None]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
