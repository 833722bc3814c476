"""Policies by name: entry points, so that anyone's package can bring more."""

import logging
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gangsched.config import POLICY_GROUPS, ConfigError, PolicyConfig, one_sentence
from gangsched.core.policy import Policies
from gangsched.installed import entry_points

log = logging.getLogger(__name__)

_FORMER_MEMBERS: Mapping[str, Mapping[str, str]] = {
    "backfill": {"allows_reservation": "reserves"},
    "order": {"orders_by_age": "by_age"},
}
"""Former names of what a policy defines, by its kind and the present name."""


def load_policies(config: PolicyConfig) -> Policies:
    """Find the policies the configuration names.

    Raises:
        ConfigError: there is none of that name, or it has no such option; the message says which
            there are.

    """

    def policy(kind: str) -> Any:
        options = getattr(config, f"{kind}_options")
        return _policy(POLICY_GROUPS[kind], kind, getattr(config, kind), options)

    named = entry_points(group=POLICY_GROUPS["order"])
    return Policies(
        order=policy("order"),
        placer=policy("placer"),
        sharing=policy("sharing"),
        backfill=policy("backfill"),
        preemptor=policy("preemptor"),
        orders={point.name: _adapted(point.load()(), "order", point.name) for point in named},
    )


def _policy(group: str, field: str, name: str, options: dict[str, Any]) -> Any:
    found = {point.name: point for point in entry_points(group=group)}
    if name not in found:
        near = get_close_matches(name, found, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(sorted(found))
        raise ConfigError(f"{field}: no policy {name!r}; there are: {known}{hint}")
    policy = found[name].load()
    if not options:
        return _adapted(policy(), field, name)
    allowed = [one.name for one in fields(policy)] if is_dataclass(policy) else []
    for option in options:
        if option not in allowed:
            raise ConfigError(
                f"{field}_options of {name}: there is no {option!r}; "
                f"there are: {', '.join(allowed) or 'none'}"
            )
    try:
        chosen = TypeAdapter(policy).validate_python(options)
    except ValidationError as error:
        raise ConfigError(one_sentence(error, f"{field}_options of {name}")) from error
    return _adapted(chosen, field, name)


class _FormerPolicy:
    """A policy of an earlier release, read by the present names of its members."""

    def __init__(self, policy: object, former: Mapping[str, str]) -> None:
        self._policy = policy
        self._former = former

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copying and pickling ask before there is a policy
            raise AttributeError(name)
        return getattr(self._policy, self._former.get(name, name))


def _adapted(policy: object, kind: str, name: str) -> Any:
    """Return a policy with the present names of its members; log each former one."""
    former = {
        present: old
        for present, old in _FORMER_MEMBERS.get(kind, {}).items()
        if not hasattr(policy, present) and hasattr(policy, old)
    }
    for present, old in former.items():
        log.warning(
            "policy %s (%s): member %s is named %s now; the next release does not read the former "
            "name",
            name,
            kind,
            old,
            present,
        )
    return _FormerPolicy(policy, former) if former else policy
