"""A small stand-in of MLflow's REST API, which may fail in every way that a server can."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

from aiohttp import web

FILTER = re.compile(r"tags\.`gangsched\.job_uid` = '([^']+)'")
LONG = 10_000_000


class StandIn:
    """Experiments and runs in memory; `fails` says how the next calls fail, and is "" for none."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict] = {}
        self.calls: list[str] = []
        self.headers: list[dict] = []
        self.fails = ""
        self.lost_answers = 0
        self.in_flight = self.most_in_flight = 0
        self.gate = asyncio.Event()
        self.url = ""

    def of(self, uid: str) -> list[dict]:
        """Return the runs of a job that are not deleted."""
        return [
            run
            for run in self.runs.values()
            if run["tags"].get("gangsched.job_uid") == uid and not run.get("deleted")
        ]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/2.0/mlflow/")
        self.calls.append(path)
        self.headers.append(dict(request.headers))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.fails:
                return await self._failed(request)
            body = await request.json() if request.method == "POST" else dict(request.query)
            answer = self._answer(path, body)
            if path == "runs/create" and self.lost_answers:
                self.lost_answers -= 1
                return web.Response(status=500)
            return answer
        finally:
            self.in_flight -= 1

    async def _failed(self, request: web.Request) -> web.StreamResponse:
        match self.fails:
            case "slow":
                await self.gate.wait()
                return web.Response(status=500)
            case "garbage":
                return web.Response(body=b"\xff{{[" * 1000)
            case "deep":
                return web.Response(body=b'{"run":' * 100_000)
            case "long":
                return web.Response(body=b'{"runs": "' + b"x" * LONG + b'"}')
            case "elsewhere":
                raise web.HTTPFound(f"{self.url}/elsewhere")
            case "evil":
                run = {"info": {"run_id": "../../../x' OR '1'='1"}}
                experiment = {"experiment_id": "1"}
                return web.json_response({"experiment": experiment, "run": run, "runs": [run]})
        return web.json_response({"message": "no " * 10_000}, status=int(self.fails))

    def _answer(self, path: str, body: dict) -> web.Response:
        match path:
            case "experiments/get-by-name":
                name = body["experiment_name"]
                if name not in self.experiments:
                    code = {"error_code": "RESOURCE_DOES_NOT_EXIST"}
                    return web.json_response(code, status=404)
                stage = "deleted" if name == "deleted" else "active"
                found = {"experiment_id": self.experiments[name], "lifecycle_stage": stage}
                return web.json_response({"experiment": found})
            case "experiments/create":
                self.experiments[body["name"]] = str(len(self.experiments) + 1)
                return web.json_response({"experiment_id": self.experiments[body["name"]]})
            case "runs/search":
                (uid,) = FILTER.fullmatch(body["filter"]).groups()
                return web.json_response({"runs": [_shown(run) for run in self.of(uid)]})
            case "runs/create":
                run = {"run_id": f"r{len(self.runs)}", "status": "RUNNING", **body}
                run["tags"] = {tag["key"]: tag["value"] for tag in body["tags"]}
                self.runs[run["run_id"]] = run
                return web.json_response({"run": _shown(run)})
            case "runs/log-batch":
                tags = {tag["key"]: tag["value"] for tag in body["tags"]}
                self.runs[body["run_id"]]["tags"] |= tags
            case "runs/update":
                self.runs[body["run_id"]] |= body
            case "runs/delete":
                self.runs[body["run_id"]]["deleted"] = True
        return web.json_response({})


def _shown(run: dict) -> dict:
    tags = [{"key": key, "value": value} for key, value in run["tags"].items()]
    return {"info": {"run_id": run["run_id"], "status": run["status"]}, "data": {"tags": tags}}


@contextlib.asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    """Serve a stand-in on loopback."""
    server, app = StandIn(), web.Application(client_max_size=2**20)
    app.router.add_route("*", "/{path:.*}", server.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.gate.set()
        await runner.cleanup()
