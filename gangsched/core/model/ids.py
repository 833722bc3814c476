"""Names of gangs, pods and nodes."""

from typing import NewType

GangId = NewType("GangId", str)
"""`namespace/name` of the group; a pod on its own is the gang `namespace/pod:name`."""


PodName = NewType("PodName", str)
"""`namespace/name`. The identity of a member: a recreated pod is the same member."""


PodUid = NewType("PodUid", str)


NodeName = NewType("NodeName", str)
