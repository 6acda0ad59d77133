"""A simulated GitLab instance over real git repositories and real HTTP in both directions.

Timings are parameters, not measurements; there are roles but no finer permissions, a number of approvals
but no finer rules, merge trains with a queue of one, no forks, no LFS and no real CI. Passing here is no
statement about any GitLab version.
"""

from gitlab_sync.sandbox.simulator.app import create_app
from gitlab_sync.sandbox.simulator.config import DateForm, HookDisabling, SimConfig, Timings
from gitlab_sync.sandbox.simulator.control import ControlRefused, SimControl
from gitlab_sync.sandbox.simulator.process import simulator_process
from gitlab_sync.sandbox.simulator.serving import Running, running_simulator

__all__ = [
    "ControlRefused",
    "DateForm",
    "HookDisabling",
    "Running",
    "SimConfig",
    "SimControl",
    "Timings",
    "create_app",
    "running_simulator",
    "simulator_process",
]
