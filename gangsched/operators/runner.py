"""The kopf operator: it watches, and hands every change to the job controller."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import kopf

from gangsched.kube.client import KubeClient, credentials
from gangsched.operators.controller import JobController

log = logging.getLogger(__name__)

_JOB_LABEL = "training.kubeflow.org/job-name"
_OURS = {"training.kubeflow.org/operator-name": "pytorchjob-controller"}


async def run_operators(
    kubeconfig: Path | None, client: KubeClient, scheduler: str = "gangsched"
) -> None:
    """Run the job controllers until cancelled."""
    controller = JobController(client, scheduler)
    registry = kopf.OperatorRegistry()
    _register(registry, controller, kubeconfig)
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # our Events say what a user needs, and nothing of handlers
    settings.scanning.disabled = False
    settings.watching.server_timeout = 300
    operator = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, clusterwide=True, standalone=True)
    )
    working = asyncio.create_task(controller.run())
    try:
        done, _ = await asyncio.wait([operator, working], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (operator, working):
            task.cancel()
        await asyncio.gather(operator, working, return_exceptions=True)


def _register(
    registry: kopf.OperatorRegistry, controller: JobController, kubeconfig: Path | None
) -> None:
    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return _connection(kubeconfig)

    # Indices are filled before any event handler runs: no job is looked at while its pods are
    # not known yet, which would make them look lost.
    @kopf.index("pods", labels=_OURS, registry=registry)
    def pods(body: kopf.Body, **_: Any) -> None:
        controller.part_seen("Pod", _plain(body), body.meta.labels[_JOB_LABEL])

    @kopf.index("services", labels=_OURS, registry=registry)
    def services(body: kopf.Body, **_: Any) -> None:
        controller.part_seen("Service", _plain(body), body.meta.labels[_JOB_LABEL])

    @kopf.index("gangsched.io", "podgroups", registry=registry)
    def groups(body: kopf.Body, **_: Any) -> None:
        if owner := _job_of(body):
            controller.part_seen("PodGroup", _plain(body), owner)

    @kopf.on.event("pods", labels=_OURS, registry=registry)
    def pod_event(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        _part(controller, "Pod", event, body, body.meta.labels[_JOB_LABEL])

    @kopf.on.event("services", labels=_OURS, registry=registry)
    def service_event(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        _part(controller, "Service", event, body, body.meta.labels[_JOB_LABEL])

    @kopf.on.event("gangsched.io", "podgroups", registry=registry)
    def group_event(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        if owner := _job_of(body):
            _part(controller, "PodGroup", event, body, owner)

    @kopf.on.event("kubeflow.org", "pytorchjobs", registry=registry)
    def job_event(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        if event["type"] == "DELETED":
            controller.job_gone(_plain(body))
        else:
            controller.job_seen(_plain(body))


def _part(
    controller: JobController, kind: str, event: kopf.RawEvent, body: kopf.Body, job: str
) -> None:
    if event["type"] == "DELETED":
        controller.part_gone(kind, _plain(body), job)
    else:
        controller.part_seen(kind, _plain(body), job)


def _plain(body: kopf.Body) -> dict[str, Any]:
    return dict(body)


def _job_of(body: kopf.Body) -> str | None:
    owners = body["metadata"].get("ownerReferences") or []
    names = (o["name"] for o in owners if o.get("controller") and o["kind"] == "PyTorchJob")
    return next(names, None)


def _connection(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    settings = credentials(kubeconfig)
    return kopf.ConnectionInfo(
        server=settings.host,
        ca_path=settings.ssl_ca_cert,
        certificate_path=settings.cert_file,
        private_key_path=settings.key_file,
        token=(settings.api_key.get("authorization") or "").removeprefix("Bearer ") or None,
    )
