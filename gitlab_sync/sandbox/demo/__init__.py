"""The demo: two replicas, a GitLab simulator and a database, requests that land, a summary one can believe.

Everything is real but GitLab: processes, HTTP in both directions, git repositories, MySQL. The simulator
loses some webhooks and doubles others on purpose, and the demo says so. Nothing of it runs on afterwards.
"""

from gitlab_sync.sandbox.demo.options import DemoOptions, Ending
from gitlab_sync.sandbox.demo.run import run_demo

__all__ = ["DemoOptions", "Ending", "run_demo"]
