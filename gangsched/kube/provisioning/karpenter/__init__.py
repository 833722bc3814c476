"""Nodes for whole gangs from Karpenter: NodeClaims of our own, all of a purchase or none."""
