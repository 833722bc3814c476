"""A data cache of one TrainJob: a head and workers that serve the rows of Parquet files.

    python -m gangsched.datacache head      # or: worker

They speak Arrow Flight. The head answers each reader which rows are its share, and which worker has
them in memory; a worker serves them. Every worker can read every file, so that a reader asks
another one if a worker ends. `gangsched.datacache.dataset` reads shares into a training loop.
"""
