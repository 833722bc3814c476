"""A complete control plane on one machine, for laptops and tests: real components, no container.

`components` builds the programs, `plane` runs them, `nodes` makes nodes, `agent` runs pods. It has
more than twelve modules because each starts, finds or stops one kind of part of a control plane.
"""
