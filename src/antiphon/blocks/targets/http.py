"""A service on HTTP as an optimistic target: done at once, undone by a compensating request.

Promises: an answer that `call` or `compensate` returned came from the service, whole. An error says
what is known of the request: `RefusedError` (the service says no, with its own sentence) and any
error whose `happened` is `"no"`: it has had no effect; `happened` `"unknown"`: it may have had one,
or have one later. Then call again, with the same id, or compensate. Nothing is repeated by itself.

What the service has to do: requests are JSON objects with an `id`, and are answered by a JSON
object. The same id again has no effect again, and the same answer. To compensate what was never
there leaves a tombstone, and refuses that request when it comes; to compensate again is fine. A
status of 4xx means no, forever; a sentence in `error` says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from typing import Any
from urllib.parse import urlsplit

from antiphon.blocks.errors import RefusedError
from antiphon.blocks.targets.base import check_id
from antiphon.errors import ConnectionLostError, FormatError, OutcomeUnknownError

ANSWER_BYTES_MAX = 1 << 20


class HttpTarget:
    """May be shared by threads: every call has a connection of its own."""

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        """`timeout`: how many seconds the service may be silent."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"{url!r} is not an address of a service; one looks like http://HOST:PORT"
            )
        self.url = url
        self._connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port, self._folder = parts.hostname, parts.port, parts.path.rstrip("/")
        self._timeout = timeout

    def call(self, request_id: str, path: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Call the service, and return its answer; `fields` go there with the id."""
        return self._ask("POST", path, {**fields, "id": check_id(request_id)})

    def compensate(
        self,
        request_id: str,
        path: str = "/compensate",
        fields: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """After this the request has no effect, and never will, whether or not it was there."""
        return self.call(request_id, path, fields or {})

    def get(self, path: str) -> dict[str, Any]:
        """Asks without changing anything."""
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, fields: Mapping[str, object] | None) -> dict[str, Any]:
        body = None if fields is None else json.dumps(fields).encode()
        connection = self._connection(self._host, self._port, timeout=self._timeout)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise ConnectionLostError(
                    f"no connection to {self.url}: {error}", happened="no"
                ) from error
            return self._exchange(connection, method, self._folder + path, body)
        finally:
            connection.close()

    def _exchange(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None
    ) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        try:
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                data = response.read(ANSWER_BYTES_MAX)
                if response.length:  # of what the service has announced
                    raise IncompleteRead(data, response.length)
        except TimeoutError as error:
            raise OutcomeUnknownError(
                f"{self.url} has not answered in {self._timeout:g} s"
            ) from error
        except (OSError, HTTPException) as error:
            raise ConnectionLostError(f"lost the connection to {self.url}: {error!r}") from error
        return self._understand(response.status, data)

    def _understand(self, status: int, data: bytes) -> dict[str, Any]:
        answer = _parse(data)
        if 200 <= status < 300 and answer is not None:
            return answer
        sentence = f"{self.url} answers {status}: {_reason(answer, data)}"
        if 400 <= status < 500:
            raise RefusedError(sentence)
        if 200 <= status < 300:
            raise FormatError(sentence, happened="unknown")
        raise OutcomeUnknownError(sentence)


def _parse(data: bytes) -> dict[str, Any] | None:
    """None: this is not a JSON object."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _reason(answer: dict[str, Any] | None, data: bytes) -> str:
    if answer is not None and isinstance(answer.get("error"), str):
        return str(answer["error"])
    return repr(data[:200])
