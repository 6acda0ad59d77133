"""What can be wrong around gitlab-sync, found and told with its remedy. Read-only.

`database` asks the server and `gitlab_side` asks GitLab; the other modules judge what they say: pure, values
in, findings out. Rows that contradict each other are `gitlab_sync.invariants`' matter. Never acts: a
connection is named, never killed; a setting is named, never changed.
"""

from gitlab_sync.doctor.blocking import Patience
from gitlab_sync.doctor.database import examine_database
from gitlab_sync.doctor.finding import Finding, Kind, finding_of

__all__ = ["Finding", "Kind", "Patience", "examine_database", "finding_of"]
