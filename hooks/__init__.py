"""The HTTP edge of gitlab-sync: requests and payloads; no SQL and no GitLab API."""
