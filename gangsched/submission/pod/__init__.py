"""What runs in the pods of a batch job: the script on node 0, and the tasks of `srun` on all nodes.

The files are copied into the job as the package `pod`. They need Python 3.8 and nothing else.
"""
