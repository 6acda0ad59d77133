"""`python -m gitlab_sync.sandbox.simulator`: serves one instance until SIGTERM or Ctrl-C.

Prints one JSON line with its address once connections are accepted; everything else is told through the
control plane.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

import uvicorn

from gitlab_sync.sandbox.simulator.config import SimConfig
from gitlab_sync.sandbox.simulator.serving import address_of, build_server, listen


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 after a clean stop, 1 if the address cannot be had."""
    options = _parser().parse_args(arguments)
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        reason = f"cannot listen on {options.host}:{options.port} ({error.strerror})"
        print(f"{reason}; give --port another number, or 0 for any free port", file=sys.stderr)
        return 1
    base_url = address_of(listener)
    config = SimConfig(
        root=options.root,
        sim_token=options.sim_token,
        version=options.version,
        hook_workers=options.hook_workers,
        seed=options.seed,
    )
    server = build_server(config, base_url, lambda _: _announce(base_url))
    # The server raises the signal again after its own shutdown; that must not turn a clean stop into a death.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if options.stop_on_eof:
        threading.Thread(target=_stop_on_eof, args=(server,), name="simulator-owner", daemon=True).start()
    server.run([listener])
    return 0


def _stop_on_eof(server: uvicorn.Server) -> None:
    """Stop once the owner has closed the pipe, on purpose or by dying."""
    # The bare descriptor: a thread inside the buffered reader holds a lock that the interpreter needs to end.
    owner = sys.stdin.fileno()
    while os.read(owner, 1024):
        continue
    server.should_exit = True


def _announce(base_url: str) -> None:
    print(json.dumps({"base_url": base_url, "pid": os.getpid()}), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gitlab_sync.sandbox.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--root", type=Path, required=True, help="folder for the repositories")
    parser.add_argument("--sim-token", required=True, help="secret of the control plane")
    parser.add_argument("--version", default="19.0.0", help="the GitLab version it claims to be")
    parser.add_argument("--hook-workers", type=int, default=2)
    parser.add_argument("--stop-on-eof", action="store_true", help="stop when standard input is closed")
    parser.add_argument("--seed", type=int, default=1, help="seed of fault rules that name none")
    return parser


if __name__ == "__main__":
    sys.exit(main())
