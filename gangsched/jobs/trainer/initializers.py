"""The initializers of a TrainJob: pods that fetch its dataset and its model before it trains.

Source: kubeflow/trainer v2.3, pkg/runtime/framework/plugins/jobset. Beyond it, `pvc://CLAIM/PATH`
mounts a volume claim of the job's namespace, and a token that the TrainJob has as a plain value
reaches its pod from a Secret: neither the JobSet nor the pod shows it.
"""

import base64
import hashlib
import re
from collections.abc import Iterator

from gangsched.core.bounds import STORAGE_URI_LETTERS, TOKEN_BYTES
from gangsched.core.model.text import shown
from gangsched.jobs.common.containers import merge_variables, mount, put_variables
from gangsched.jobs.common.model import Json
from gangsched.jobs.trainer import datacache

INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
"""The steps of initializers, and their fields in spec.initializer."""

SECRET_VARIABLES = ("ACCESS_TOKEN", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
"""Variables of Kubeflow's initializers with a token or a key."""

SOURCE = "/mnt/storage"
"""Where the claim of `pvc://` is mounted; gangsched.initializers has the same path."""

_CLAIM = re.compile(r"pvc://([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)(/.*)?")
_TABLE = re.compile(r"cache://[^/]+/[^/]+")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_DIGITS = 12


class Tokens:
    """The tokens that a TrainJob has as plain values, and the Secret that keeps them."""

    def __init__(self, job: Json) -> None:
        self._job = job
        self.values = dict(_plain_tokens(job))
        digest = hashlib.sha256(str(job["metadata"].get("uid")).encode())
        for key, value in self.values.items():
            digest.update(f"\0{key}\0{value}".encode())
        self.name = f"{job['metadata']['name']}-tokens-{digest.hexdigest()[:_DIGITS]}"

    def secret(self) -> Json | None:
        """Return the Secret, or None where no token is a plain value."""
        if not self.values:
            return None
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": self.name},
            "immutable": True,
            "data": {
                key: base64.b64encode(value.encode()).decode() for key, value in self.values.items()
            },
        }

    def references(self, part: str, variables: list[Json]) -> list[Json]:
        """Return variables, with references to the Secret in place of plain tokens."""
        return [
            {
                "name": variable["name"],
                "valueFrom": {
                    "secretKeyRef": {"name": self.name, "key": f"{part}.{variable['name']}"}
                },
            }
            if f"{part}.{variable.get('name')}" in self.values
            else variable
            for variable in variables
        ]


def _claim_of(uri: str, fields: Json) -> re.Match[str] | None:
    """Return the volume claim that an address names; a cache has the address in a variable."""
    if uri.startswith(datacache.SCHEME):
        uri = datacache.variable({"spec": {"initializer": {"dataset": fields}}}, datacache.LOCATION)
    return _CLAIM.fullmatch(uri)


def initialize(pod: Json, container: Json, fields: Json, tokens: Tokens) -> None:
    """Set the variables of an initializer, and mount the claim that its address names."""
    if not fields:
        return
    step = container["name"]
    if uri := fields.get("storageUri"):
        put_variables(container, {"STORAGE_URI": uri})
        if claim := _claim_of(uri, fields):
            volume = {
                "name": "initializer-source",
                "persistentVolumeClaim": {"claimName": claim[1], "readOnly": True},
            }
            mount(pod, container, volume, SOURCE, read_only=True)
    variables = fields.get("env") or []
    merge_variables(
        container.setdefault("env", []), tokens.references(INITIALIZERS[step], variables)
    )
    if fields.get("secretRef"):
        container.setdefault("envFrom", []).append({"secretRef": fields["secretRef"]})


def error(job: Json) -> str:
    """Return what is wrong with the initializers of a TrainJob, field and value first; or ""."""
    parts = job["spec"].get("initializer") or {}
    for part in INITIALIZERS.values():
        where = f"spec.initializer.{part}"
        uri = (parts.get(part) or {}).get("storageUri") or ""
        if why := _address_error(where, f"{where}.storageUri", uri):
            return why
        if not uri.startswith(datacache.SCHEME):
            continue
        if part != "dataset" or not _TABLE.fullmatch(uri):
            return (
                f"{where}.storageUri is {shown(uri)}; cache://SCHEMA/TABLE is allowed, for a data "
                "set alone"
            )
        location = f"{where}.env {datacache.LOCATION}"
        if why := _address_error(where, location, datacache.variable(job, datacache.LOCATION)):
            return why
    if why := datacache.size_error(job):
        return why
    for key, value in _plain_tokens(job):
        if len(value.encode()) > TOKEN_BYTES.most:
            part, _, name = key.partition(".")
            return (
                f"spec.initializer.{part}.env: {name} has more than {TOKEN_BYTES.most} bytes, "
                "which is the most for a token"
            )
    return ""


def _address_error(where: str, field: str, uri: str) -> str:
    """Return what is wrong with an address in a field of an initializer."""
    if len(uri) > STORAGE_URI_LETTERS.most:
        return f"{field} has {len(uri)} characters; at most {STORAGE_URI_LETTERS.most} are allowed"
    if _CONTROL.search(uri):
        return (
            f"{field} is {shown(uri)}; characters other than white space and control characters "
            "are allowed"
        )
    if "@" in uri.partition("://")[2].partition("/")[0]:
        return (
            f"{field} has a user or a password; write them into a Secret and name it in "
            f"{where}.secretRef"
        )
    if uri.startswith("pvc:") and (not _CLAIM.fullmatch(uri) or {"..", "."} & set(uri.split("/"))):
        return (
            f"{field} is {shown(uri)}; pvc://CLAIM/PATH is allowed, with a volume claim of the "
            "job's namespace and a path without `..`"
        )
    return ""


def warning(job: Json) -> str:
    """Return a warning about tokens that every reader of the TrainJob can read; or ""."""
    names = [f"spec.initializer.{key.replace('.', '.env ')}" for key, _ in _plain_tokens(job)]
    if not names:
        return ""
    return (
        f"{', '.join(names)}: every reader of the TrainJob can read the value; pods get it from a "
        "Secret. Write it into a Secret of your own, and name that in secretRef."
    )


def _plain_tokens(job: Json) -> Iterator[tuple[str, str]]:
    """Yield the tokens with a plain value: field of the initializer and variable, value."""
    parts = job["spec"].get("initializer") or {}
    for part in INITIALIZERS.values():
        for variable in (parts.get(part) or {}).get("env") or []:
            value = variable.get("value")
            if variable.get("name") in SECRET_VARIABLES and isinstance(value, str) and value:
                yield f"{part}.{variable['name']}", value
