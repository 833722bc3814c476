"""All that the author of a policy imports: `from gangsched.policy_api import PendingGang, fill`.

Compatibility: a name of `__all__`, a public field of its class and the meaning of both stay from
one minor release to the next. Where a name has to change, the old one works for one more minor
release with a DeprecationWarning, and CHANGELOG.md names the new one. Fields may be added
to classes, and parameters with a default to functions. Other modules may change any time.

The names, by what a policy is made of:

- The Protocols that a policy implements: `Placer`, `QueueOrder`, `Sharing`, `Backfill` and
  `Preemptor`. The planner checks what a policy returns, and `PolicyError` names the gang for which
  a policy broke its contract.
- What a policy reads: `Snapshot`, `PendingGang` with its `Gang` and its `Member`s, `QueueView`
  with its `Queue`, `PreemptionRequest` with its `Candidate`s, each a `RunningGang` with a
  `PreemptionReason`.
- What a policy returns: `Placement` (with `Eviction` and `Proof`) or `Refusal` (with `Reason`,
  `NearMiss` and `Remedy`).
- What makes a placer short: `fill`, which goes down the tree of domains and asks a `BinChooser`
  how many pods each of its `Bins` takes. `fewest_bins`, `evenly`, `first_fit` and `tightest` are
  choosers, `in_order` makes one from an order, and `FillStrategy` says more than a chooser alone.
- What makes a preemptor short: `VictimSearch`.
"""

from typing import TYPE_CHECKING

from gangsched.core.cluster.node_table import Ints
from gangsched.core.model.gangs import Gang, Member, PendingGang, runtime_s
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.placement import Eviction, Placement, Proof
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.model.queues import Queue
from gangsched.core.model.refusal import NearMiss, Reason, Refusal, Remedy
from gangsched.core.placement.choosers import (
    BinChooser,
    Bins,
    evenly,
    fewest_bins,
    first_fit,
    in_order,
    tightest,
)
from gangsched.core.placement.fill import fill
from gangsched.core.placement.tree_fill import FillStrategy
from gangsched.core.policy import (
    Backfill,
    Candidate,
    Placer,
    PolicyError,
    PreemptionReason,
    PreemptionRequest,
    Preemptor,
    QueueOrder,
    QueueView,
    Sharing,
)
from gangsched.core.preemption.victim_search import VictimSearch
from gangsched.core.renamed import renamed
from gangsched.core.snapshot import RunningGang, Snapshot

__all__ = [
    "GPU",
    "Backfill",
    "BinChooser",
    "Bins",
    "Candidate",
    "Eviction",
    "FillStrategy",
    "Gang",
    "GangId",
    "Ints",
    "Member",
    "NearMiss",
    "NodeName",
    "PendingGang",
    "Placement",
    "Placer",
    "PodName",
    "PodRequirements",
    "PolicyError",
    "PreemptionReason",
    "PreemptionRequest",
    "Preemptor",
    "Proof",
    "Queue",
    "QueueOrder",
    "QueueView",
    "Reason",
    "Refusal",
    "Remedy",
    "RunningGang",
    "Sharing",
    "Snapshot",
    "VictimSearch",
    "evenly",
    "fewest_bins",
    "fill",
    "first_fit",
    "in_order",
    "runtime_s",
    "tightest",
]

if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(__name__, {"PodNeeds": "gangsched.core.model.pods:PodRequirements"})
