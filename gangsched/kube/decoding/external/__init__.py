"""Groups and workloads of other schedulers and operators, read as gangs."""
