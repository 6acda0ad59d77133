"""`make bench`: measures, prints the tables, writes one JSON file. See `--help`.

Runs part after part on a private, durable server; a part that fails ends the run with its reason. Ratios
are the result; the times behind them are of this machine and moment and stand in the JSON file only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[0] = str(
    ROOT
)  # as a script, this folder would stand first and its modules under the names of others

from bench import answering, beside, claiming, idle, machine, polling, settling, submitting  # noqa: E402
from bench.sizes import DEFAULT, LARGE, QUICK, Sizes  # noqa: E402
from bench.stage import private_server  # noqa: E402
from bench.tables import Table, plain, render  # noqa: E402
from gitlab_sync.logs import configure_logging  # noqa: E402
from gitlab_sync.sandbox.database import Flavour, PrivateServer  # noqa: E402
from gitlab_sync.setting_values import LogFormat, LogLevel  # noqa: E402

Part = Callable[[PrivateServer, Sizes], list[Table]]

PARTS: Final[Mapping[str, Part]] = {
    "settle": settling.measure,
    "claim": claiming.measure,
    "submit": submitting.measure,
    "beside": beside.measure,
    "poll": polling.measure,
    "hooks": answering.measure,
    "idle": idle.measure,
}


def main(arguments: Sequence[str]) -> int:
    """Run the chosen parts; the exit code."""
    options = _options(arguments)
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING)
    sizes = _sizes(options)
    begun = time.perf_counter()
    with private_server(Flavour(options.server), sizes.buffer_pool_mb) as server:
        facts = machine.circumstances(server, sizes.seed)
        tables = [table for name in options.parts for table in _measured(name, server, sizes, facts)]
    facts["seconds"] = round(time.perf_counter() - begun, 1)
    path = _written(Path(options.results), options.server, facts, sizes, tables)
    print(f"{facts['seconds']:.0f} s; written to {path}")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description="Measure; print ratios and counts.")
    parser.add_argument("--server", choices=[flavour.value for flavour in Flavour], default="mysql")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: the counts hold, the ratios do not")
    parser.add_argument("--large", action="store_true", help="a history of 10 million rows in a pool of 4 GB")
    parser.add_argument("--parts", type=_parts, default=list(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--block-s", type=float, help="seconds of a block (6 for figures to publish)")
    parser.add_argument("--rounds", type=int, help="blocks of each side")
    parser.add_argument("--buffer-pool-mb", type=int, help="of the database server; its default otherwise")
    parser.add_argument("--seed", type=int, help="of everything that is drawn")
    parser.add_argument("--results", default=str(ROOT / "bench-results"), help="folder of the JSON file")
    return parser.parse_args(arguments)


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no part; choose from {', '.join(PARTS)}")
    return names


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else LARGE if options.large else DEFAULT
    names = ("block_s", "rounds", "seed", "buffer_pool_mb")
    given = {name: getattr(options, name) for name in names}
    return replace(sizes, **{name: value for name, value in given.items() if value is not None})


def _measured(name: str, server: PrivateServer, sizes: Sizes, facts: Mapping[str, Any]) -> list[Table]:
    """The tables of one part, printed as soon as they are there."""
    begun = time.perf_counter()
    print(f"measuring: {name}", file=sys.stderr, flush=True)
    tables = PARTS[name](server, sizes)
    print(f"measured: {name}, {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    for table in tables:
        print(render(table, machine.lines(facts)), end="\n\n", flush=True)
    return tables


def _written(
    folder: Path, server: str, facts: Mapping[str, Any], sizes: Sizes, tables: Sequence[Table]
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{server}.json"
    content = {"circumstances": facts, "sizes": asdict(sizes), "tables": [plain(table) for table in tables]}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
