"""The template of an Experiment's trials, where it is in a ConfigMap."""

from collections import OrderedDict
from dataclasses import replace

import msgspec
from pydantic import ValidationError

from gangsched.api.jobs.katib import ConfigMapSource
from gangsched.config import one_sentence
from gangsched.core.model.text import shown
from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import NotFound
from gangsched.kube.client.paths import is_dns_name, object_path
from gangsched.operators.api_objects import collection
from gangsched.operators.evaluation.pool import Evaluators, OverrunError, UnusableError
from gangsched.operators.job_kind import BlockedError, InvalidJobError

PUBLISHED = ("katib.kubeflow.org/component", "trial-templates")
"""Katib's label of ConfigMaps with templates: other namespaces may read them."""

_KEPT = 100


class TrialTemplates:
    """Reads templates from ConfigMaps; the last ones are kept as long as they do not change."""

    def __init__(self, evaluators: Evaluators) -> None:
        self._evaluators = evaluators
        self._known: OrderedDict[tuple[str, str, str], Json] = OrderedDict()

    async def filled_in(self, client: KubeClient, owned: Owned) -> Owned:
        """Return an experiment with the template of its ConfigMap, if it names one.

        Raises:
            InvalidJobError: the template cannot be used.
            BlockedError: it cannot be read now.

        """
        template = (owned.body.get("spec") or {}).get("trialTemplate") or {}
        given = template.get("configMap") if isinstance(template, dict) else None
        if given is None:
            return owned
        where = f"Experiment {owned.namespace}/{owned.name}: spec.trialTemplate"
        if template.get("trialSpec") is not None:
            raise InvalidJobError(f"{where} has trialSpec and configMap; remove one of them")
        try:
            source = ConfigMapSource.model_validate(given)
        except ValidationError as error:
            raise InvalidJobError(one_sentence(error, f"{where}.configMap")) from error
        job = await self._job(client, owned, source, f"{where}.configMap")
        spec = owned.body["spec"] | {"trialTemplate": template | {"trialSpec": job}}
        return replace(owned, body=owned.body | {"spec": spec})

    async def _job(
        self, client: KubeClient, owned: Owned, source: ConfigMapSource, where: str
    ) -> Json:
        namespace = source.configMapNamespace or owned.namespace
        name = f"{namespace}/{source.configMapName}"
        for part in (namespace, source.configMapName):
            if not is_dns_name(part):
                raise InvalidJobError(f"{where}: {shown(part)} is no valid name")
        missing = f"{where}: there is no ConfigMap {shown(name)}"
        if namespace != owned.namespace:
            missing += f" with the label {PUBLISHED[0]}: {PUBLISHED[1]}"
        path = object_path(collection("v1", "ConfigMap", namespace), source.configMapName)
        try:
            body: Json = msgspec.json.decode(await client.get(path))
        except NotFound:
            raise BlockedError(f"{missing}; gangsched retries it") from None
        metadata = body["metadata"]
        labels = metadata.get("labels") or {}
        if namespace != owned.namespace and labels.get(PUBLISHED[0]) != PUBLISHED[1]:
            raise BlockedError(f"{missing}; gangsched retries it")
        text = (body.get("data") or {}).get(source.templatePath)
        if text is None:
            raise InvalidJobError(
                f"{where}.templatePath is {shown(source.templatePath)}, which is no key of "
                f"ConfigMap {shown(name)}"
            )
        key = metadata["uid"], metadata["resourceVersion"], source.templatePath
        if key not in self._known:
            self._known[key] = await self._parsed(owned, text, f"{where}: ConfigMap {name}")
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return self._known[key]

    async def _parsed(self, owned: Owned, text: str, what: str) -> Json:
        try:
            return await self._evaluators.template(owned, text)
        except UnusableError as error:
            raise InvalidJobError(f"{what} {error}") from error
        except OverrunError as error:
            if error.may_retry:
                raise BlockedError(f"{what} cannot be read: {error}; retried") from error
            raise InvalidJobError(f"{what} cannot be read: {error}") from error
