"""Reads objects as `kubectl get -o json` does, without the 0.2 s of CPU that a kubectl needs.

It also applies objects, and deletes all of a kind: requests and answers of the official client are
objects of its own, which take several times as long to make.
"""

import argparse
import json
from collections.abc import Sequence
from urllib.parse import urlencode

import yaml

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_APPLIED = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"}

_WORDS = argparse.ArgumentParser(exit_on_error=False)
_WORDS.add_argument("kinds")
_WORDS.add_argument("name", nargs="?", default="")
_WORDS.add_argument("-n", dest="namespace", default="default")
_WORDS.add_argument("-l", dest="labelSelector", default="")
_WORDS.add_argument("--field-selector", dest="fieldSelector", default="")
_WORDS.add_argument("-A", dest="everywhere", action="store_true")


class Reader:
    """The kinds that an API server serves, and their objects."""

    def __init__(self, api) -> None:
        self._api = api
        self._paths: dict[str, tuple[str, str, bool]] = {}

    def get(self, *words: str) -> dict:
        """Return one object, or a list, of the words after `kubectl get`.

        Raises:
            ApiException: the API server refuses, or there is no such object.
            KeyError: it does not serve such a kind.

        """
        asked = _WORDS.parse_args(words)
        if "/" in asked.kinds:
            asked.kinds, _, asked.name = asked.kinds.partition("/")
        chosen = {name: getattr(asked, name) for name in ("labelSelector", "fieldSelector")}
        query = urlencode({name: text for name, text in chosen.items() if text})
        first, *more = [
            self._ask("GET", self._path(kind, asked), query) for kind in asked.kinds.split(",")
        ]
        if more:
            first["items"] += [item for one in more for item in one["items"]]
        return first

    def delete_all(self, namespace: str, kinds: Sequence[str]) -> None:
        """Delete all objects of these kinds in a namespace, and pods without a grace period.

        Raises:
            ApiException: the API server refuses.
            KeyError: it does not serve such a kind.

        """
        query = urlencode({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        for kind in kinds:
            asked = _WORDS.parse_args([kind, "-n", namespace])
            self._ask("DELETE", self._path(kind, asked), query)

    def apply(self, namespace: str, text: str) -> None:
        """Apply objects on the server, each in its own namespace or else in this one.

        Raises:
            ApiException: the API server refuses, or does not know a field.
            KeyError: it does not serve such a kind.

        """
        for document in filter(None, yaml.safe_load_all(text)):
            metadata = document["metadata"]
            asked = argparse.Namespace(
                namespace=metadata.get("namespace", namespace),
                name=metadata["name"],
                everywhere=False,
            )
            path = self._path(f"{document['apiVersion']}/{document['kind']}", asked)
            self._ask("PATCH", path, urlencode(_APPLIED), body=document)

    def _path(self, kind: str, asked: argparse.Namespace) -> str:
        if kind not in self._paths:
            self._paths = self._discovered()
        base, plural, namespaced = self._paths[kind]
        there = f"namespaces/{asked.namespace}/" if namespaced and not asked.everywhere else ""
        return f"{base}/{there}{plural}" + (f"/{asked.name}" if asked.name else "")

    def _discovered(self) -> dict[str, tuple[str, str, bool]]:
        """Return where each kind is, by all names that kubectl knows; the first group has it."""
        paths: dict[str, tuple[str, str, bool]] = {}
        for root in ("/api", "/apis"):
            for group in self._ask("GET", root, "", _DISCOVERY)["items"]:
                of = group["metadata"].get("name", "")
                for version in group["versions"]:
                    base = "/".join(filter(None, (root, of, version["version"])))
                    for kind in version.get("resources", []):
                        plural = kind["resource"]
                        of_group = "/".join(filter(None, (of, version["version"])))
                        place = base, plural, kind["scope"] == "Namespaced"
                        short = kind.get("shortNames", [])
                        exact = f"{plural}.{of}", f"{plural}.{version['version']}.{of}"
                        exact += (f"{of_group}/{kind['responseKind']['kind']}",)
                        for name in (plural, kind["singularResource"], *short, *exact):
                            paths.setdefault(name, place)
        return paths

    def _ask(
        self,
        verb: str,
        path: str,
        query: str,
        accepted: str = "application/json",
        body: dict | None = None,
    ) -> dict:
        headers = {"Accept": accepted}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml"
        answer = self._api.call_api(
            f"{path}?{query}" if query else path,
            verb,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
        )
        return json.loads(answer.data)
