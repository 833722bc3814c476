"""Downloads a repository of Hugging Face's hub, or of a server with its interface (HF_ENDPOINT)."""

import re

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects

from gangsched.initializers.source import Source, StorageError
from gangsched.initializers.target import Target

_OF_MODEL = ["*.json", "*.safetensors", "*.model", "*.txt", "*.gguf"]
"""The files of a model; pickled weights may run code when they are loaded."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_WORKERS = 4


def download(source: Source, part: str, token: str | None, target: Target) -> None:
    """Download a repository: all files that its first answer lists, of one commit.

    Raises:
        StorageError: the hub refuses, or a file is not allowed.

    """
    name = "/".join([source.host, *source.path.split("/")[:1]]).rstrip("/")
    api = HfApi(token=token)
    allowed = _OF_MODEL if part == "model" else None
    ignored = list(target.ignored) or None
    try:
        info = api.repo_info(name, repo_type=part, files_metadata=True)
        if not _COMMIT.fullmatch(info.sha or ""):
            raise StorageError(f"the hub names no commit of {name}")
        sizes = {item.rfilename: item.size or 0 for item in info.siblings or []}
        wanted = list(filter_repo_objects(sizes, allow_patterns=allowed, ignore_patterns=ignored))
        if not wanted:
            raise StorageError(f"{name} has no files that are wanted")
        for file in wanted:
            target.check(file, sizes[file])
        snapshot_download(
            name,
            repo_type=part,
            revision=info.sha,
            local_dir=target.root,
            allow_patterns=allowed,
            ignore_patterns=ignored,
            token=token,
            max_workers=_WORKERS,
        )
    except HfHubHTTPError as error:
        raise StorageError(f"the hub refuses {name}: {error}") from error
