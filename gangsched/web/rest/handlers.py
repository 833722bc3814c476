"""The handlers of the REST interface."""

import asyncio

from aiohttp import web

from gangsched.web.model import PageModel
from gangsched.web.rest import answers
from gangsched.web.sessions import ViewerSession
from gangsched.web.visible import VisibleModels

SESSION = web.RequestKey("session", ViewerSession)
"""The session of a request, once it is identified."""


class RestHandlers:
    """Answers requests of the REST interface with what their viewer may see."""

    def __init__(self, visible: VisibleModels, *, login: bool) -> None:
        self._visible, self._login = visible, login

    def add_routes(self, router: web.UrlDispatcher, place: str) -> None:
        """Add the routes below a prefix, which may name a moment."""
        router.add_get(f"{place}{answers.PREFIX}/cluster", self._cluster)
        for name in answers.LISTINGS:
            router.add_get(f"{place}{answers.PREFIX}/{name}", self._listing)
        router.add_get(f"{place}{answers.PREFIX}/gangs/{{namespace}}/{{name}}", self._gang)
        router.add_get(f"{place}/openapi.json", self._description)

    async def _model(self, request: web.Request) -> PageModel:
        keeper = await self._visible.keeper(request.match_info.get("moment"))
        return await self._visible.model(keeper, request[SESSION].rights)

    async def _cluster(self, request: web.Request) -> web.StreamResponse:
        return json_answer(answers.cluster_answer(await self._model(request)))

    async def _listing(self, request: web.Request) -> web.StreamResponse:
        model, name = await self._model(request), request.path.rpartition("/")[2]
        return json_answer(
            await asyncio.to_thread(answers.listing_answer, name, model, request.query)
        )

    async def _gang(self, request: web.Request) -> web.StreamResponse:
        name = f"{request.match_info['namespace']}/{request.match_info['name']}"
        keeper = await self._visible.keeper(request.match_info.get("moment"))
        row, parts = await self._visible.gang(keeper, request[SESSION].rights, name)
        return json_answer(answers.GangAnswer(row, parts.pods, parts.remedies[0], parts.story))

    async def _description(self, _: web.Request) -> web.StreamResponse:
        return json_answer(answers.description(login=self._login))


def is_rest(request: web.Request) -> bool:
    """Return whether a request is one of the REST interface."""
    return f"{answers.PREFIX}/" in request.path or request.path.endswith("/openapi.json")


def json_answer(value: object, status: int = 200) -> web.Response:
    """Return a value as an answer."""
    response = web.Response(
        body=answers.encoded(value), content_type="application/json", status=status
    )
    response.enable_compression()
    return response
