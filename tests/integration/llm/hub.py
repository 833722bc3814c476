"""A stand-in of Hugging Face's hub: the calls of huggingface_hub, for those with the token.

/data/model is the model team/tiny, and /data/dataset the data set team/questions.
"""

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

TOKEN = sys.argv[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORIES = {
    ("models", "team/tiny"): Path("/data/model"),
    ("datasets", "team/questions"): Path("/data/dataset"),
}


class Hub(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, b"{}", {"X-Error-Message": "Invalid credentials"})
            return
        path = unquote(urlsplit(self.path).path)
        for (kind, name), folder in REPOSITORIES.items():
            files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
            if path in (f"/api/{kind}/{name}", f"/api/{kind}/{name}/revision/{COMMIT}"):
                listed = [
                    {"rfilename": file, "size": p.stat().st_size} for file, p in files.items()
                ]
                body = {"id": name, "sha": COMMIT, "siblings": listed, "private": True}
                self._answer(200, json.dumps(body).encode())
                return
            if path == f"/api/{kind}/{name}/tree/{COMMIT}":
                tree = [
                    {"type": "file", "path": file, "size": p.stat().st_size, "oid": "0" * 40}
                    for file, p in files.items()
                ]
                self._answer(200, json.dumps(tree).encode())
                return
            prefix = f"/{name}" if kind == "models" else f"/{kind}/{name}"
            file = path.removeprefix(f"{prefix}/resolve/{COMMIT}/")
            if path != file and file in files:
                content = files[file].read_bytes()
                tag = hashlib.sha256(content).hexdigest()
                self._answer(200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'})
                return
        self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _answer(self, code: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


print("the hub is ready", flush=True)
ThreadingHTTPServer(("0.0.0.0", 8080), Hub).serve_forever()
