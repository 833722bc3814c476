"""Names that modules had in the release before: they work for one more, and warn."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a module that had other names before.

    `names` maps each old name to `module:name` of today. The imports are made at the first use, so
    that no module loads more than it did.
    """

    def look_up(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, today = names[name].partition(":")
        warnings.warn(
            f"{module}.{name} is {home}.{today} now, and the old name is removed by the next "
            f"release; a policy imports from gangsched.policy_api",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(home), today)

    return look_up
