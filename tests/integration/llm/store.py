"""A store with the interface of S3 (moto), with the files of /data in the bucket `models`."""

import signal
import sys
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="0.0.0.0", port=9000)
server.start()
keys = {"aws_access_key_id": "key", "aws_secret_access_key": sys.argv[1]}
client = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", region_name="us-east-1", **keys)
client.create_bucket(Bucket="models")
for file in sorted(path for path in Path("/data").rglob("*") if path.is_file()):
    client.upload_file(str(file), "models", f"tiny/{file.relative_to('/data')}")
print("the store is ready", flush=True)
signal.pause()
