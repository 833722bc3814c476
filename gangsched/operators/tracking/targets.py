"""Which experiment of which server a job's run belongs to, by the settings and the job.

The address comes from the settings alone. A job chooses no more than the end of a name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gangsched.api import names
from gangsched.config import NamespaceTracking, TrackingConfig
from gangsched.core.bounds import EXPERIMENT_LETTERS
from gangsched.core.model.text import shown

_EXPERIMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/ -]*")
_SWITCH = {"on": True, "off": False}
_NAMESPACE = "{namespace}"


class TargetError(Exception):
    """An annotation of a job is wrong; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class TrackingServer:
    """One server: its addresses for gangsched, pods and browsers, and the Secrets for it."""

    uri: str
    pods_uri: str
    ui_uri: str
    secret: str | None
    pods_secret: str


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A server and the name of an experiment there."""

    server: TrackingServer
    experiment: str


def target_of(
    config: TrackingConfig, namespace: str, annotations: Mapping[str, str]
) -> RunTarget | None:
    """Return where the run of a job belongs, or None if the job gets none.

    Raises:
        TargetError: an annotation is wrong.

    """
    own = config.namespaces.get(namespace) or NamespaceTracking()
    switch = annotations.get(names.TRACKING_ANNOTATION)
    if switch is not None and switch not in _SWITCH:
        raise TargetError(
            f"annotation {names.TRACKING_ANNOTATION} is {shown(switch)}; on and off are allowed"
        )
    named = annotations.get(names.EXPERIMENT_ANNOTATION)
    if not own.enabled or switch == "off":
        return None
    if config.jobs == "named" and switch is None and named is None:
        return None
    if named is None:
        experiment = config.experiment if own.experiment is None else own.experiment
    elif len(named) <= EXPERIMENT_LETTERS.most and _EXPERIMENT.fullmatch(named):
        experiment = f"{config.experiment_prefix}{named}"
    else:
        raise TargetError(
            f"annotation {names.EXPERIMENT_ANNOTATION} is {shown(named)}; up to "
            f"{EXPERIMENT_LETTERS.most} letters, digits, spaces and . _ / - are allowed"
        )
    return RunTarget(_server(config, own), experiment.replace(_NAMESPACE, namespace) or "Default")


def _server(config: TrackingConfig, own: NamespaceTracking) -> TrackingServer:
    """Return the server of a namespace; another server never gets the cluster's credentials."""
    if own.uri is None:
        uri, pods, ui, secret = config.uri, config.pods_uri, config.ui_uri, config.secret
    else:
        uri, pods, ui, secret = own.uri, None, None, None
    return TrackingServer(
        uri,
        own.pods_uri or pods or uri,
        own.ui_uri or ui or uri,
        own.secret or secret,
        config.pods_secret,
    )
