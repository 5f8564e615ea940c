"""Calls that an event loop can serve and a simulated one cannot: each is refused, with the
reason."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from antiphon.sim.event_loop.refusal import NETWORK, PROCESSES, SIGNALS, THREADS, refusal


def _refused(name: str, why: str) -> Any:
    def refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
        raise refusal(name, why)

    return refuse


class RefusingLoop(asyncio.AbstractEventLoop):
    """An event loop that refuses every call that a simulation cannot carry out, with the reason."""

    run_in_executor = _refused("run_in_executor (or asyncio.to_thread)", THREADS)
    set_default_executor = _refused("set_default_executor", THREADS)

    add_signal_handler = _refused("add_signal_handler", SIGNALS)
    remove_signal_handler = _refused("remove_signal_handler", SIGNALS)

    subprocess_exec = _refused("create_subprocess_exec", PROCESSES)
    subprocess_shell = _refused("create_subprocess_shell", PROCESSES)
    connect_read_pipe = _refused("connect_read_pipe", PROCESSES)
    connect_write_pipe = _refused("connect_write_pipe", PROCESSES)

    create_connection = _refused("create_connection (or asyncio.open_connection)", NETWORK)
    create_server = _refused("create_server (or asyncio.start_server)", NETWORK)
    create_unix_connection = _refused("create_unix_connection", NETWORK)
    create_unix_server = _refused("create_unix_server", NETWORK)
    create_datagram_endpoint = _refused("create_datagram_endpoint", NETWORK)
    connect_accepted_socket = _refused("connect_accepted_socket", NETWORK)
    start_tls = _refused("start_tls", NETWORK)
    sendfile = _refused("sendfile", NETWORK)
    getaddrinfo = _refused("getaddrinfo", NETWORK)
    getnameinfo = _refused("getnameinfo", NETWORK)
    add_reader = _refused("add_reader", NETWORK)
    remove_reader = _refused("remove_reader", NETWORK)
    add_writer = _refused("add_writer", NETWORK)
    remove_writer = _refused("remove_writer", NETWORK)
    sock_accept = _refused("sock_accept", NETWORK)
    sock_connect = _refused("sock_connect", NETWORK)
    sock_recv = _refused("sock_recv", NETWORK)
    sock_recv_into = _refused("sock_recv_into", NETWORK)
    sock_recvfrom = _refused("sock_recvfrom", NETWORK)
    sock_recvfrom_into = _refused("sock_recvfrom_into", NETWORK)
    sock_sendall = _refused("sock_sendall", NETWORK)
    sock_sendfile = _refused("sock_sendfile", NETWORK)
    sock_sendto = _refused("sock_sendto", NETWORK)
