"""Where the arrays of nodes were before; see `gangsched.policy_api`."""

from typing import TYPE_CHECKING

from gangsched.core.renamed import renamed

if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {
            "Ints": "gangsched.core.cluster.node_table:Ints",
            "Mask": "gangsched.core.cluster.node_table:Mask",
        },
    )
