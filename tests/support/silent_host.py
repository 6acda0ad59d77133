"""A host that takes connections and never says a word; and how often somebody has come."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

_LIMIT_S: Final = 60.0


class SilentHost:
    """Use `silent_host`."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self._kept: list[socket.socket] = []
        self._has_come = threading.Event()

    def wait_for_somebody(self) -> None:
        """Return once somebody has connected."""
        assert self._has_come.wait(_LIMIT_S), "nobody has come"

    def accept(self) -> None:
        """Take whoever comes until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                self._kept.append(self._listener.accept()[0])
                self._has_come.set()

    def close(self) -> None:
        for one in self._kept:
            one.close()


@contextlib.contextmanager
def silent_host() -> Iterator[SilentHost]:
    """A silent host on loopback for the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = SilentHost(listener)
        accepting = threading.Thread(target=host.accept, daemon=True)
        accepting.start()
        try:
            yield host
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
            accepting.join()
            host.close()
