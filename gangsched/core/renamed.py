"""Names of the release before, of modules and of classes: they work for one more, and warn."""

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


class RenamedAttribute:
    """A field or method of a class under the name that it had before.

    `RenamedAttribute("add_pods")` in the body of a class reads `add_pods` of its objects.
    """

    def __init__(self, today: str) -> None:
        self._today = today
        self._old = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = name

    def __get__(self, instance: object, owner: type) -> object:
        warnings.warn(
            f"{owner.__name__}.{self._old} is {self._today} now, and the old name is removed by "
            f"the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(owner if instance is None else instance, self._today)
