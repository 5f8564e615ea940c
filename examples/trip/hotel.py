"""A hotel with rooms to book over HTTP: an optimistic service, whose bookings can be compensated.

    python hotel.py FILE [--rooms 10] [--port 0]

    POST /book        {"id": ..., "guest": ...}    -> {"id": ..., "guest": ..., "room": 7}
    POST /compensate  {"id": ...}                  -> {"id": ..., "compensated": true}
    GET  /bookings                                 -> {"bookings": [...], "free": 9}

A booking takes effect at once. The same id again gives the same answer and no second room; that
holds for "no room is free", too. Compensation gives the room back; of a booking that was never made
it is remembered, and refuses the booking when it comes. What was answered is in FILE, so `kill -9`
loses nothing. A refused caller gets a status of 4xx, and a sentence in `error`.
"""

import argparse
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BODY_BYTES_MAX = 64 * 1024
TEXT_MAX = 200
SILENCE_S = 10.0

# `room` is NULL if the booking was refused or compensated, and no two bookings have the same room.
TABLE = """
CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('booked', 'full', 'compensated')),
    guest TEXT,
    room INTEGER UNIQUE
)
"""

Answer = dict[str, object]


class RefusalError(Exception):
    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def conflict(sentence: str) -> RefusalError:
    return RefusalError(HTTPStatus.CONFLICT, sentence)


class Bookings:
    """In a file: what a call did is there as a whole, and for good when the call returns."""

    def __init__(self, path: Path, rooms: int) -> None:
        self._rooms = rooms
        self._lock = threading.Lock()
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.execute(TABLE)

    def book(self, request_id: str, guest: str) -> Answer:
        with self._transaction():
            known = self._file.execute(
                "SELECT state, guest, room FROM requests WHERE id = ?", (request_id,)
            ).fetchone()
            state, whose, room = known or self._add(request_id, guest)
        if state == "compensated":
            raise conflict(f"booking {request_id!r} was compensated before it came")
        if whose != guest:
            raise conflict(f"booking {request_id!r} is for another guest")
        if state == "full":
            raise conflict("no room is free")
        return {"id": request_id, "guest": guest, "room": room}

    def _add(self, request_id: str, guest: str) -> tuple[str, str, int | None]:
        taken = {room for (room,) in self._file.execute("SELECT room FROM requests")}
        room = next((room for room in range(1, self._rooms + 1) if room not in taken), None)
        state = "full" if room is None else "booked"
        self._file.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?)", (request_id, state, guest, room)
        )
        return state, guest, room

    def compensate(self, request_id: str) -> Answer:
        with self._transaction():
            self._file.execute(
                "INSERT INTO requests VALUES (?, 'compensated', NULL, NULL) "
                "ON CONFLICT (id) DO UPDATE SET state = 'compensated', room = NULL",
                (request_id,),
            )
        return {"id": request_id, "compensated": True}

    def all(self) -> Answer:
        with self._transaction():
            rows = self._file.execute(
                "SELECT id, guest, room FROM requests WHERE room IS NOT NULL ORDER BY room"
            ).fetchall()
        bookings = [{"id": id_, "guest": guest, "room": room} for id_, guest, room in rows]
        return {"bookings": bookings, "free": self._rooms - len(bookings)}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """IMMEDIATE: a second process on the same file waits from here on, and does not fail."""
        with self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise


class Handler(BaseHTTPRequestHandler):
    server: "Hotel"
    timeout = SILENCE_S

    def answer(self) -> None:
        status = HTTPStatus.OK
        try:
            answer = self._route()
        except RefusalError as error:
            status, answer = error.status, {"error": str(error)}
        except TimeoutError:
            status, answer = HTTPStatus.REQUEST_TIMEOUT, {"error": "the body does not come"}
        except sqlite3.Error as error:
            status, answer = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"the file: {error}"}
        self._send(status, answer)

    do_GET = do_POST = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer  # noqa: N815

    def _route(self) -> Answer:
        body = self._body()
        bookings = self.server.bookings
        match self.command, self.path:
            case "POST", "/book":
                fields = parse(body)
                return bookings.book(text(fields, "id"), text(fields, "guest"))
            case "POST", "/compensate":
                return bookings.compensate(text(parse(body), "id"))
            case "GET", "/bookings":
                return bookings.all()
            case _, "/book" | "/compensate" | "/bookings":
                raise RefusalError(
                    HTTPStatus.METHOD_NOT_ALLOWED, f"{self.path} does not know {self.command}"
                )
        raise RefusalError(HTTPStatus.NOT_FOUND, "there are /book, /compensate and /bookings")

    def _body(self) -> bytes:
        """Read in any case: what is left unread would break the connection before the answer."""
        if self.headers["Transfer-Encoding"] is not None:
            raise RefusalError(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length, and no chunks")
        length = self.headers["Content-Length"] or "0"
        if not (length.isascii() and length.isdigit()):
            raise bad_request(f"a Content-Length is a number, not {length!r}")
        if len(length) > 9 or int(length) > BODY_BYTES_MAX:
            raise RefusalError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {BODY_BYTES_MAX} bytes are read"
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise bad_request("the body ends early")
        return body

    def _send(self, status: int, answer: Answer) -> None:
        data = json.dumps(answer).encode() + b"\n"
        with suppress(ConnectionError):  # who asked may be gone
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong, in our words: JSON, and methods unknown to it are no
        fault of ours."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else code
        self._send(status, {"error": message or "this is not a request"})


def bad_request(sentence: str) -> RefusalError:
    return RefusalError(HTTPStatus.BAD_REQUEST, sentence)


def parse(body: bytes) -> Answer:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise bad_request("the body is not a JSON object")
    return fields


def text(fields: Answer, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= TEXT_MAX:
        raise bad_request(f"{name!r} has to be 1 to {TEXT_MAX} printable characters")
    return value


class Hotel(ThreadingHTTPServer):
    def __init__(self, port: int, bookings: Bookings) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.bookings = bookings


def main() -> None:
    parser = argparse.ArgumentParser(description="A hotel with rooms to book over HTTP.")
    parser.add_argument("file", type=Path, help="keeps the bookings")
    parser.add_argument("--rooms", type=int, default=10)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    options = parser.parse_args()
    with Hotel(options.port, Bookings(options.file, options.rooms)) as hotel:
        print(f"http://127.0.0.1:{hotel.server_port}", flush=True)
        with suppress(KeyboardInterrupt):
            hotel.serve_forever()


if __name__ == "__main__":
    main()
