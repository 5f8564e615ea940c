"""A service on HTTP as an optimistic target: done at once, undone by a compensating request.

Promises: an answer that `call` or `compensate` returned came from the service, whole. After a
`RefusedError` (the service refuses, with its own sentence) or another error whose `happened` is
`"no"`, the request has had no effect; after one with `"unknown"` it may have had one, or have one
later. Then call again, with the same id, or compensate. No request is repeated by itself.

Duties of the service: requests and answers are JSON objects, requests with an `id`. The same id
again has no further effect, and the same answer. Compensating a request that has not come leaves a
tombstone, so that it is refused when it comes; compensating again is no error. A status of 4xx
refuses forever, with the reason as a sentence in `error`.
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
    """A service on HTTP; promises are the module's. Threads may share one: every call has a
    connection of its own."""

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        """`timeout`: seconds that the service may be silent."""
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
        """Undo a request, whether it has come or not: after this it has no effect, and never
        will."""
        return self.call(request_id, path, fields or {})

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer to a request that changes nothing."""
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
    """Return the JSON object in these bytes; None: it is none."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _reason(answer: dict[str, Any] | None, data: bytes) -> str:
    if answer is not None and isinstance(answer.get("error"), str):
        return str(answer["error"])
    return repr(data[:200])
