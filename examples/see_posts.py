"""Takes what sinks post, and prints a line for each span or event: python see_posts.py PORT.

With HOOK_SECRET in the environment it believes only webhooks that are signed with it.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = os.environ.get("HOOK_SECRET", "")


def is_genuine(headers: Mapping[str, str], body: bytes) -> bool:
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    named = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}."
    made = base64.b64encode(hmac.digest(key, named.encode() + body, hashlib.sha256)).decode()
    given = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(f"v1,{made}", one) for one in given)


def lines(path: str, posted: dict[str, Any]) -> Iterator[str]:
    if path == "/v1/traces":
        scopes = [scope for one in posted["resourceSpans"] for scope in one["scopeSpans"]]
        for span in (span for scope in scopes for span in scope["spans"]):
            took = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
            yield f"{span['traceId']}  {took / 1e6:8.1f} ms  {span['name']}"
    elif "event" in posted:
        yield f"{posted['event']}: {posted['runId'] or posted['taskId']}"


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        is_hook = not self.path.startswith("/v1/")
        if is_hook and SECRET and not is_genuine(dict(self.headers.items()), body):
            self.send_error(401)
            return
        for line in lines(self.path, json.loads(body)):
            print(line, flush=True)
        self.send_response(200)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Only what was posted is printed."""


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
print("listening", flush=True)
server.serve_forever()
