"""Policies by name: entry points, so that anyone's package can bring more."""

from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gangsched.config import POLICY_GROUPS, ConfigError, PolicyConfig, one_sentence
from gangsched.core.policy import Policies


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
        orders={point.name: point.load()() for point in named},
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
        return policy()
    allowed = [one.name for one in fields(policy)] if is_dataclass(policy) else []
    for option in options:
        if option not in allowed:
            raise ConfigError(
                f"{field}_options of {name}: there is no {option!r}; "
                f"there are: {', '.join(allowed) or 'none'}"
            )
    try:
        return TypeAdapter(policy).validate_python(options)
    except ValidationError as error:
        raise ConfigError(one_sentence(error, f"{field}_options of {name}")) from error
