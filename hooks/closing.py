"""Closes a listener without losing a connection.

Whoever has connected and was not accepted yet is reset when a listener is closed: a proxy then holds a
request that it has sent and may not send again. So first the kernel is told to ignore new ones, then all who
got in are accepted, then the listener is closed, and whom the kernel ignored is refused at the next try, a
second later, with nothing sent. A proxy takes the next replica then.

Races considered:
A  a handshake is half done when the filter comes: it is let through to its end, only the first packet of a
   connection (SYN without ACK) is dropped.
B  the queue is not empty when the listener is closed: a round trip is waited for, and the event loop
   accepts what came within it before the pause ends, however late that is.
C  no such filter (not Linux, or a sandbox that refuses it): the same without it; whoever connects within the
   turn of the event loop may be reset.
D  a connection is accepted in the very turn in which the listener is closed: asyncio makes its transport a
   turn later and drops it when the server is closed by then (`Server._attach`). So nobody is accepted any
   more first, and those who were have a turn to get in.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections.abc import Collection
from typing import Final

ROUND_TRIP_S: Final = 0.1
_SO_ATTACH_FILTER: Final = 26  # Linux; the socket module does not name it
_ALL: Final = 0xFFFFFFFF
# Classic BPF on a TCP header: byte 13 holds the flags, 0x02 is SYN, 0x10 is ACK.
_NO_NEW_ONES: Final = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the flags
        (0x54, 0, 0, 0x12),  # keep SYN and ACK
        (0x15, 0, 1, 0x02),  # SYN alone: go on, else skip one
        (0x06, 0, 0, 0),  # drop it
        (0x06, 0, 0, _ALL),  # take it whole
    )
)


async def accept_the_last(listeners: Collection[socket.socket], round_trip_s: float = ROUND_TRIP_S) -> None:
    """Let nobody new in, and return when all who are in were accepted. Then close the listeners at once."""
    for listener in listeners:
        with contextlib.suppress(OSError):  # race C
            _ignore_new_ones(listener)
    await asyncio.sleep(round_trip_s)
    await asyncio.sleep(0)  # whoever the event loop has seen at the door is let in
    for listener in listeners:
        asyncio.get_running_loop().remove_reader(listener)
    await asyncio.sleep(0)  # race D


def _ignore_new_ones(listener: socket.socket) -> None:
    code = ctypes.create_string_buffer(_NO_NEW_ONES, len(_NO_NEW_ONES))
    count = len(_NO_NEW_ONES) // struct.calcsize("HBBI")
    program = struct.pack("HP", count, ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
