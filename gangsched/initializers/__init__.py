"""Fetches the data set or the model of a TrainJob into /workspace, as a program in its pod.

    python -m gangsched.initializers dataset    # or: model

It has the contract of Kubeflow Trainer's initializers: STORAGE_URI names the store, IGNORE_PATTERNS
what to leave out, and ACCESS_TOKEN, ACCESS_KEY_ID, SECRET_ACCESS_KEY, ENDPOINT, REGION and ROLE_ARN
how to enter it. Beside hf:// and s3:// it reads pvc:// and file://.
"""
