"""A receiver of webhooks and traces that uses as little of the machine as it can.

It stands for other machines: it takes what comes, or answers nothing, behind everything else.
"""

import os
import select
import socket
import sys

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_END = b"\r\n\r\n"


def serve(*, hangs: bool) -> None:
    """Until killed. Prints its port first."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    connections: dict[int, tuple[socket.socket, bytearray]] = {}
    print(listener.getsockname()[1], flush=True)
    while True:
        for number, _ in poll.poll():
            os.sched_yield()
            if number == listener.fileno():
                taken, _ = listener.accept()
                connections[taken.fileno()] = (taken, bytearray())
                poll.register(taken, select.EPOLLIN)
                continue
            connection, buffer = connections[number]
            data = _received(connection)
            if not data:
                poll.unregister(number)
                connections.pop(number)[0].close()
                continue
            buffer += data
            if not hangs and _takes_request(buffer):
                connection.send(_ANSWER)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _takes_request(buffer: bytearray) -> bool:
    """Whether a request is complete; it is then removed."""
    end = buffer.find(_END)
    if end < 0:
        return False
    length = int(buffer[:end].lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    if len(buffer) < end + len(_END) + length:
        return False
    del buffer[: end + len(_END) + length]
    return True


if __name__ == "__main__":
    serve(hangs=sys.argv[1] == "hang")
