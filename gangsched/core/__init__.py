"""The pure core: facts in, orders out.

No I/O, clock, thread, log, pydantic or Kubernetes type lives here; time is an argument.
Read `engine/lifecycle/lifecycle.py` first: its docstring draws the life of a gang.
"""
