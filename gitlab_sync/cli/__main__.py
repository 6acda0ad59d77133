"""`python -m gitlab_sync.cli`: the same as `gitlab-sync`, for where the entry point is not on PATH."""

from gitlab_sync.cli import main

if __name__ == "__main__":
    main()
