"""Process nodes: a small kubelet that runs pods as local processes. For laptops and tests.

`agent` registers nodes and watches pods, `worker` lives one pod's life, `spec` turns a pod into
environment and files, `sandbox` isolates, `kubelet` serves logs.
"""
