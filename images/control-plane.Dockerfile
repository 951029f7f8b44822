# SPDX-License-Identifier: Apache-2.0
# The operator and the tuner in one image. It holds no torch and no compiler; uv stays in the lock
# stage. From the repository's root: docker build -f images/control-plane.Dockerfile .
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS lock
ARG UV_VERSION=0.13.9
RUN python3 -m venv /uv \
 && PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    /uv/bin/pip install --no-cache-dir --disable-pip-version-check uv==${UV_VERSION}
COPY pyproject.toml uv.lock /src/
RUN /uv/bin/uv export --project /src --locked --quiet --no-emit-project --no-header \
    --extra operator --extra autotune --output-file /requirements.txt

FROM ${BASE}
# The layer of the dependencies: rebuilt when the locked versions change, not when pyproject.toml does.
ARG UV_NO_CACHE=true
COPY --from=lock /requirements.txt /opt/headway/requirements.txt
RUN --mount=type=bind,from=lock,source=/uv,target=/uv \
    python3 -m venv --without-pip /opt/headway/venv \
 && SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt UV_LINK_MODE=copy \
    PYC_INVALIDATION_MODE=UNCHECKED_HASH \
    /uv/bin/uv pip install --python /opt/headway/venv/bin/python --no-deps --require-hashes \
    --compile-bytecode --requirements /opt/headway/requirements.txt
ENV PATH=/opt/headway/bin:/opt/headway/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/headway/lib PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
CMD ["headway-operator", "--help"]

# The layers of the code.
COPY crds/headway_api /opt/headway/lib/headway_api
COPY operator/headway_operator /opt/headway/lib/headway_operator
COPY autotune/headway_autotune /opt/headway/lib/headway_autotune
COPY server/headway_server/__init__.py /opt/headway/lib/headway_server/__init__.py
COPY server/headway_server/scheduler /opt/headway/lib/headway_server/scheduler
RUN mkdir /opt/headway/bin \
 && for name in operator autotune; do \
      printf '#!/bin/sh\nexec python3 -m headway_%s "$@"\n' $name > /opt/headway/bin/headway-$name; \
    done \
 && chmod 755 /opt/headway/bin/* \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/headway/lib
USER 65532:65532
