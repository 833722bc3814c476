"""The nouns of the core: frozen values that compare by value.

It has more than twelve modules because each noun has a module of its own.
"""

from typing import TYPE_CHECKING

from gangsched.core.renamed import renamed

if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {
            name: f"{__name__}.{module}:{name}"
            for module, names in {
                "constraints": ("Spread", "Constraints", "NO_CONSTRAINTS"),
                "gangs": ("Role", "Gang", "Member", "runtime_s"),
                "ids": ("GangId", "PodName", "PodUid", "NodeName"),
                "nodes": ("Layout", "Node"),
                "pods": ("Requests", "HostPort", "PODS", "GPU", "MILLI", "Expression", "NodeTerm"),
            }.items()
            for name in names
        }
        | {name: f"{__name__}.pods:{name}" for name in ("Taint", "Toleration")}
        | {
            "NOBODY": f"{__name__}.gangs:UNKNOWN_USER",
            "Near": f"{__name__}.constraints:LevelRequest",
            "PodNeeds": f"{__name__}.pods:PodRequirements",
            "Share": f"{__name__}.pods:GpuShare",
            "Slices": f"{__name__}.constraints:SliceRequest",
            "Alike": f"{__name__}.gangs:EquivalenceClassView",
            "Seated": f"{__name__}.gangs:PlacedMember",
            "Waiting": f"{__name__}.gangs:PendingGang",
        },
    )
