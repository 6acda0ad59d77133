"""What a laptop needs to see the whole house run: a private database, a GitLab simulator, the demo.

An optional extra: nothing outside this package imports it, and it never talks to a real GitLab.
"""
