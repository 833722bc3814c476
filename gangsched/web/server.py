"""The HTTP server: who may connect, what each answer forbids the browser, and the handlers."""

import asyncio
import logging
from collections import OrderedDict
from importlib.resources import files
from urllib.parse import urlencode, urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from gangsched.web.gang_actions import ActionError, GangAction, GangActions
from gangsched.web.keeper import ModelKeeper
from gangsched.web.moments import JournalMoments, ReadingBusyError
from gangsched.web.rest.answers import QueryError
from gangsched.web.rest.handlers import SESSION, RestHandlers, is_rest, json_answer
from gangsched.web.rights import Rights
from gangsched.web.sessions import LOCAL, LoginError, ViewerSessions
from gangsched.web.views.pages import (
    VIEW_NAMES,
    NoPageError,
    PageRequest,
    PageWriter,
    WhatIfParts,
    change_of,
)
from gangsched.web.visible import VisibleModels
from gangsched.web.what_if import WhatIfError

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BODY_MAX, _FORM_LETTERS_MAX = 64 * 1024, 600
_STREAMS_MAX = 64
_STREAM_WRITE_S = 10.0
"""A viewer that takes no data for longer is disconnected."""
_STREAM_PING_S = 15.0
_PAGES_KEPT = 16
_STATIC = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "moment.js": "text/javascript",
}
_OPEN = ("/login", "/healthz", "/favicon.ico", *(f"/static/{name}" for name in _STATIC))
_MOMENT = r"/at/{moment:-?\d{1,15}(?:\.\d{1,9})?}"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class WebServer:
    """Serves the pages on loopback. Without `sessions` every local viewer sees everything."""

    def __init__(
        self,
        pages: ModelKeeper | JournalMoments,
        sessions: ViewerSessions | None = None,
        actions: GangActions | None = None,
        *,
        grafana: str | None = None,
    ) -> None:
        """Take what is shown, the present state or a journal, and what viewers may do.

        The pages link to the dashboards of `grafana`.
        """
        self._actions = actions
        self._sessions, self._visible = sessions, VisibleModels(pages)
        self._rest = RestHandlers(self._visible, login=sessions is not None)
        self._pages = PageWriter(may_act=actions is not None, grafana=grafana)
        self._written: OrderedDict[tuple[int, int, Rights, str, str], str] = OrderedDict()
        self._streams = 0
        self._cookie = "gangsched"
        self._static = {
            name: files("gangsched.web").joinpath("static", name).read_bytes() for name in _STATIC
        }

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guard, self._identify], client_max_size=_BODY_MAX)
        app.router.add_get("/", self._first)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/favicon.ico", self._no_icon)
        for place in ("", _MOMENT):
            for name in VIEW_NAMES:
                app.router.add_get(f"{place}/{name}", self._view)
            app.router.add_get(f"{place}/gang", self._gang)
            app.router.add_get(f"{place}/what-if", self._what_if)
            app.router.add_get(f"{place}/moment", self._go_to_moment)
            self._rest.add_routes(app.router, place)
        app.router.add_get("/events", self._events)
        app.router.add_get("/static/{name}", self._static_file)
        app.router.add_get("/login", self._login_form)
        app.router.add_post("/login", self._log_in)
        if self._actions is not None:
            app.router.add_post("/action", self._act)
        app.router.add_post("/logout", self._log_out)
        return app

    async def start(self, port: int) -> tuple[web.AppRunner, int]:
        """Listen on loopback, port 0 for a free one; return what stops it, and the port.

        Raises:
            OSError: the port is in use.

        """
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, HOST, port)
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        bound = int(runner.addresses[0][1])
        self._cookie = f"gangsched-{bound}"  # browsers send a cookie to all ports of a host
        return runner, bound

    # -- every request ------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject other sites, and set the headers of every answer."""
        try:
            _check_origin(request)
            response = await handler(request)
        except NoPageError as error:
            response = self._failure(request, "Not found", str(error), 404)
        except LoginError as error:
            response = self._failure(request, "Not now", str(error), error.status)
        except ReadingBusyError as error:
            response = self._failure(request, "Not now", str(error), 503)
        except QueryError as error:
            response = self._failure(request, "Bad request", str(error), 400)
        except web.HTTPException as error:
            error.headers.update(_HEADERS)
            raise
        except Exception:
            log.exception("%s failed", request.path)
            sentence = "The page failed; the log of gangsched web has the error."
            response = self._failure(request, "Error", sentence, 500)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    @web.middleware
    async def _identify(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Find the session of a request, or send the viewer to the login."""
        if self._sessions is None:
            request[SESSION] = LOCAL
            return await handler(request)
        if request.path in _OPEN:
            return await handler(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if is_rest(request) and scheme.lower() == "bearer":
            request[SESSION] = await self._sessions.of_token(token.strip())
            return await handler(request)
        session = await self._sessions.of(request.cookies.get(self._cookie, ""))
        if session is None:
            if is_rest(request):
                raise LoginError("Send a token: Authorization: Bearer TOKEN.")
            if request.path == "/events":
                raise web.HTTPUnauthorized(text="log in first\n")
            raise web.HTTPSeeOther("/login")
        request[SESSION] = session
        return await handler(request)

    async def _keeper(self, request: web.Request) -> ModelKeeper:
        """Return the keeper of the moment that a request names, or of the present."""
        return await self._visible.keeper(request.match_info.get("moment"))

    # -- pages --------------------------------------------------------------------------------

    async def _first(self, _: web.Request) -> web.StreamResponse:
        raise web.HTTPSeeOther("/cluster")

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _no_icon(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=204)

    async def _view(self, request: web.Request) -> web.StreamResponse:
        keeper, viewer = await self._keeper(request), request[SESSION]
        model = await self._visible.model(keeper, viewer.rights)
        key = keeper.number, model.version, viewer.rights, viewer.user, request.path_qs
        known = self._written.get(key)
        if viewer.notice:  # a page with a notice is for one viewer, once
            asked = PageRequest(model, viewer, request.query, _here(request))
            name = request.path.rpartition("/")[2]
            return self._html(await asyncio.to_thread(self._pages.page, name, asked))
        if known is None:
            asked = PageRequest(model, viewer, request.query, _here(request))
            name = request.path.rpartition("/")[2]
            known = self._written[key] = await asyncio.to_thread(self._pages.page, name, asked)
            while len(self._written) > _PAGES_KEPT:
                self._written.popitem(last=False)
        return self._html(known)

    async def _gang(self, request: web.Request) -> web.StreamResponse:
        keeper, name = await self._keeper(request), request.query.get("name", "")
        viewer = request[SESSION]
        try:
            row, parts = await self._visible.gang(keeper, viewer.rights, name)
        except NoPageError:
            if viewer.notice:  # a job that was held or released has no gang for a while
                raise web.HTTPSeeOther("/gangs") from None
            raise
        model = await self._visible.model(keeper, viewer.rights)
        asked = PageRequest(model, viewer, request.query, _here(request))
        return self._html(await asyncio.to_thread(self._pages.gang, asked, row, parts))

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        keeper, viewer = await self._keeper(request), request[SESSION]
        model = await self._visible.model(keeper, viewer.rights)
        asked = PageRequest(model, viewer, request.query, _here(request))
        change, answer, problem = change_of(request.query), None, ""
        if change:
            try:
                answer = await self._visible.what_if(keeper, viewer.rights, change)
            except WhatIfError as error:
                problem = str(error)
        orders = tuple(sorted(keeper.source.policies.orders))
        parts = WhatIfParts(change, answer, problem, orders)
        return self._html(await asyncio.to_thread(self._pages.what_if, asked, parts))

    async def _act(self, request: web.Request) -> web.StreamResponse:
        """Carry out an action of a viewer, and go back to a page that says what it did."""
        viewer, form = request[SESSION], await request.post()
        kind, gang, value = (_text(form.get(name)) for name in ("kind", "gang", "value"))
        keeper = await self._keeper(request)
        back = "/gangs"
        assert self._actions is not None, "the route exists only then"  # noqa: S101
        try:
            if kind == "book":
                back = "/timeline"
                viewer.notice = await self._actions.book(viewer, value, keeper.source.now_s())
            else:
                row = (await self._visible.model(keeper, viewer.rights)).gangs.get(gang)
                if row is not None and kind != "cancel":
                    back = f"/gang?{urlencode({'name': gang})}"
                state = row.state if row is not None else ""
                action = GangAction(kind, gang, value)
                viewer.notice = await self._actions.act(viewer, action, state)
        except ActionError as error:
            viewer.notice = f"Not done: {error}"
        raise web.HTTPSeeOther(back)

    async def _go_to_moment(self, request: web.Request) -> web.StreamResponse:
        """Show a view at another moment: `part` of the journal's time, from 0 to 1000."""
        query = dict(request.query)
        view, part = query.pop("view", ""), query.pop("part", "")
        if view not in (*VIEW_NAMES, "gang", "what-if") or not (part.isascii() and part.isdigit()):
            raise NoPageError("A moment is a view and a part from 0 to 1000.")
        at_s = self._visible.moment_at(int(part[:5]) / 1000)
        asked = f"?{urlencode(query)}" if query else ""
        raise web.HTTPSeeOther(f"/at/{at_s:.3f}/{view}{asked}")

    def _failure(self, request: web.Request, title: str, message: str, status: int) -> web.Response:
        if is_rest(request):
            return json_answer({"error": message}, status)
        return self._html(self._pages.failure(title, message), status)

    def _html(self, text: str, status: int = 200) -> web.Response:
        response = web.Response(
            text=text, content_type="text/html", status=status, headers=dict(_HEADERS)
        )
        response.enable_compression()
        return response

    async def _static_file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._static:
            raise web.HTTPNotFound
        return web.Response(body=self._static[name], content_type=_STATIC[name])

    # -- login --------------------------------------------------------------------------------

    async def _login_form(self, _: web.Request) -> web.StreamResponse:
        if self._sessions is None:
            raise web.HTTPSeeOther("/cluster")
        return self._html(self._pages.login(has_code=self._sessions.has_code))

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        if self._sessions is None:
            raise web.HTTPSeeOther("/cluster")
        form = await request.post()
        secret = form.get("token")
        try:
            cookie = await self._sessions.log_in(secret if isinstance(secret, str) else "")
        except LoginError as error:
            text = self._pages.login(str(error), has_code=self._sessions.has_code)
            return self._html(text, error.status)
        response = web.HTTPSeeOther("/cluster")
        response.set_cookie(self._cookie, cookie, path="/", httponly=True, samesite="Strict")
        raise response

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        if self._sessions is not None:
            self._sessions.log_out(request.cookies.get(self._cookie, ""))
        response = web.HTTPSeeOther("/login")
        response.del_cookie(self._cookie, path="/", httponly=True, samesite="Strict")
        raise response

    # -- updates ------------------------------------------------------------------------------

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the version of each new model; a viewer that is late gets only the newest."""
        keeper = self._visible.present
        if keeper is None:
            raise web.HTTPNotFound
        if self._streams >= _STREAMS_MAX:
            raise web.HTTPServiceUnavailable(text="too many pages are open\n")
        self._streams += 1
        try:
            return await self._stream(request, keeper)
        finally:
            self._streams -= 1

    async def _stream(self, request: web.Request, keeper: ModelKeeper) -> web.StreamResponse:
        response = web.StreamResponse(headers=dict(_HEADERS))
        response.content_type = "text/event-stream"
        await response.prepare(request)
        version = 0
        while await self._still_valid(request):
            try:
                async with asyncio.timeout(_STREAM_PING_S):
                    version = (await keeper.after(version)).version
                text = f"event: model\ndata: {version}\n\n"
            except TimeoutError:
                text = ": nothing new\n\n"
            try:
                async with asyncio.timeout(_STREAM_WRITE_S):
                    await response.write(text.encode())
            except (TimeoutError, ConnectionError):
                break
        return response

    async def _still_valid(self, request: web.Request) -> bool:
        """Return whether the session of a stream has not ended."""
        if self._sessions is None:
            return True
        try:
            return await self._sessions.of(request.cookies.get(self._cookie, "")) is not None
        except LoginError:
            return True  # no data flows by the stream: the next page asks again


def _check_origin(request: web.Request) -> None:
    """Check that a request is meant for this machine, and a form comes from a page of this server.

    Raises:
        web.HTTPForbidden: the Host is another, perhaps rebound by DNS, or the form is of a site.

    """
    host = request.headers.get("Host", "")
    if not _is_loopback(host):
        raise web.HTTPForbidden(text="the Host header has to name this machine\n")
    if request.method not in ("GET", "HEAD") and request.headers.get("Origin") != f"http://{host}":
        raise web.HTTPForbidden(text="the request comes from another site\n")


def _is_loopback(host: str) -> bool:
    """Return whether a Host header names this machine."""
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
    except ValueError:
        return False
    return name in _LOOPBACK and "@" not in host and not parts.path


def _text(value: object) -> str:
    return value[:_FORM_LETTERS_MAX].strip() if isinstance(value, str) else ""


def _here(request: web.Request) -> str:
    """Return the view and the query of a request, for links to it at another moment."""
    return request.path.rpartition("/")[2] + (
        f"?{request.query_string}" if request.query_string else ""
    )
