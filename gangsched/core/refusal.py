"""Where refusals were before; see `gangsched.policy_api`."""

from typing import TYPE_CHECKING

from gangsched.core.renamed import renamed

if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {
            name: f"gangsched.core.model.refusal:{name}"
            for name in ("NearMiss", "Reason", "Refusal", "Remedy", "plural")
        }
        | {"amount": "gangsched.core.model.refusal:format_amount"},
    )
