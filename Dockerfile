# The image of the service. Built in one stage with everything that building needs, run from another one that has neither pip
# nor a compiler nor anything that the service may write to: run it with a read-only root and an empty /tmp.
#
#   docker build --tag gitlab-sync .
#
# Whatever is installed is in requirements/*.txt by its hash; where pip takes it from is the builder's own business
# (--build-arg PIP_INDEX_URL=…). tests/package/test_image.py runs the steps of the first stage.
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all: PIP_REQUIRE_HASHES=1
WORKDIR /build
COPY requirements/build.txt requirements/run.txt requirements/
RUN python -m venv tools \
    && python -m venv --without-pip /opt/gitlab-sync \
    && tools/bin/pip install --quiet --requirement requirements/build.txt \
    && tools/bin/pip --python /opt/gitlab-sync/bin/python install --quiet --no-compile --requirement requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY hooks hooks/
COPY gitlab_sync gitlab_sync/
COPY sql sql/
ENV PIP_REQUIRE_HASHES=0
RUN tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . \
    && tools/bin/pip --python /opt/gitlab-sync/bin/python install --quiet --no-compile --no-deps dist/*.whl \
    && /opt/gitlab-sync/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/gitlab-sync/lib

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="gitlab-sync" \
      org.opencontainers.image.description="Lands approved change requests in GitLab, one merge request per round." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gitlab-sync /opt/gitlab-sync
# Nothing can be compiled on a read-only root, and python's own images leave the standard library uncompiled: each start would
# do it again. Bytecode is taken as it is, whatever times the files have got.
RUN python -m compileall -q --invalidation-mode unchecked-hash -x '/(test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip|site-packages)/' \
    "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
# In a container loopback is nobody's way in: it listens everywhere, probes and metrics on a port of their own. python-gitlab
# looks for a home when it is imported, and a user without a name (as OpenShift's) has none.
ENV PATH=/opt/gitlab-sync/bin:$PATH \
    HOME=/nonexistent \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GITLAB_SYNC_LISTEN=0.0.0.0:8080 \
    GITLAB_SYNC_MANAGEMENT_LISTEN=0.0.0.0:8081
USER 10001:10001
WORKDIR /
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8081/livez', timeout=4)"]
ENTRYPOINT ["gitlab-sync"]
CMD ["serve"]
