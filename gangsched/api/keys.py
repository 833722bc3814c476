"""Detect unknown labels and annotations of gangsched.io, which are probably misspelt."""

from collections.abc import Mapping
from difflib import get_close_matches

from gangsched.api import dialects, names
from gangsched.core.model.text import shown

REASON = "UnknownKey"

_NAMED = 3
KNOWN = frozenset(
    {
        *(key for key in dialects.KEYS if key.startswith(dialects.OURS)),
        names.POD_GROUP_LABEL,
        names.MIN_MEMBER_LABEL,
        names.ROLE_LABEL,
        names.QUEUE_LABEL,
        names.USER_ANNOTATION,
        names.RUNTIME_ANNOTATION,
        names.CHECKPOINT_ANNOTATION,
        names.PREEMPTED_ANNOTATION,
        names.STOP_ANNOTATION,
        names.TRACKING_ANNOTATION,
        names.EXPERIMENT_ANNOTATION,
        names.RUN_ANNOTATION,
        names.RUN_OUTCOME_ANNOTATION,
        names.JOB_ID_LABEL,
        names.JOB_NAME_LABEL,
        names.ARRAY_LABEL,
        names.TASK_LABEL,
        names.GATE,
        names.WOKEN_ANNOTATION,
        names.NO_GATE_ANNOTATION,
        names.DEVICES_ANNOTATION,
        names.MINIMUM_ANNOTATION,
        names.MIG_LABEL,
        names.PROVISIONING_LABEL,
        names.PROVISIONED_GANG_ANNOTATION,
        names.PLACEHOLDER_LABEL,
        names.PLACEHOLDERS_ANNOTATION,
        names.PURCHASE_ANNOTATION,
        names.PRICE_ANNOTATION,
        names.CLOSED_TAINT,
        names.MIG_LAYOUT_ANNOTATION,
        *(key for key in names.INDEX_LABELS if key.startswith(dialects.OURS)),
        *(
            f"{names.GROUP}/{key}"
            for key in ("gang-restarts", "kill-trial", "made-from", "checkpoint-claim")
        ),
        *(
            f"{names.GROUP}/{key}"
            for key in ("leader", "node-kind", "first-rank", "local", "first-steps")
        ),
    }
)
"""All labels and annotations of gangsched.io that gangsched reads or writes, on any object."""


def ours(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations of gangsched.io, known or unknown."""
    return {key: value for key, value in keys.items() if key.startswith(dialects.OURS)}


def unknown(*keys: Mapping[str, str] | None) -> str:
    """Return a sentence about unknown labels and annotations of gangsched.io; "" for none."""
    unknown_keys = sorted(
        {
            key
            for some in keys
            for key in some or ()
            if key.startswith(dialects.OURS) and key not in KNOWN
        }
    )
    if not unknown_keys:
        return ""
    hints = []
    for key in unknown_keys[:_NAMED]:
        near = get_close_matches(key, sorted(KNOWN), 1, 0.8)
        hints.append(shown(key) + (f" (did you mean {near[0]}?)" if near else ""))
    more = f" and {len(unknown_keys) - _NAMED} more" if len(unknown_keys) > _NAMED else ""
    verb = "is" if len(unknown_keys) == 1 else "are"
    return f"{', '.join(hints)}{more} {verb} not known: no label or annotation is called so."
