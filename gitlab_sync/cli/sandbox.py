"""`sandbox`: the demo. The one place outside the sandbox that knows it, and only while the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from gitlab_sync.cli.failures import ExitCode, Failure


def sandbox(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="End after the summary; its last line is JSON.")
    ] = False,
    requests: Annotated[
        int, typer.Option("--requests", min=1, max=5000, help="How many requests to submit.")
    ] = 120,
    port_base: Annotated[
        int,
        typer.Option("--port-base", min=0, max=65_533, help="First of three ports; 0: any that are free."),
    ] = 0,
) -> None:
    """Watch requests land: database, GitLab simulator and two replicas, all private and gone at the end."""
    try:
        from gitlab_sync.sandbox.demo import DemoOptions, Ending, run_demo
    except ImportError as missing:
        said = (
            f"the sandbox is not installed ({missing}); pip install 'gitlab-sync-service[sandbox]' brings it"
        )
        raise Failure(ExitCode.FOUND, [said]) from missing
    ending = Ending.AFTER_SUMMARY if once else Ending.WHEN_TOLD
    raise typer.Exit(run_demo(DemoOptions(requests, ending, port_base)))
