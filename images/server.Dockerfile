# SPDX-License-Identifier: Apache-2.0
# The inference server with torch for CUDA and CPU. It holds no compiler: the one that builds the
# native library and uv stay in stages of their own.
# From the repository's root: docker build -f images/server.Dockerfile .
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS lock
ARG UV_VERSION=0.13.9
RUN python3 -m venv /uv \
 && PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    /uv/bin/pip install --no-cache-dir --disable-pip-version-check uv==${UV_VERSION}
COPY pyproject.toml uv.lock /src/
# Without a compiler Triton cannot run, yet torch would pick its kernels where it is installed.
RUN /uv/bin/uv export --project /src --locked --quiet --no-emit-project --no-header \
    --no-emit-package triton --extra server --output-file /requirements.txt

FROM ${BASE} AS native
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
COPY server/headway_server/native /src/native
RUN python3 /src/native/build.py /built

FROM ${BASE}
# The layer of the dependencies: rebuilt when the locked versions change, not when pyproject.toml does.
# Static libraries and headers only serve a compiler.
ARG UV_NO_CACHE=true
COPY --from=lock /requirements.txt /opt/headway/requirements.txt
RUN --mount=type=bind,from=lock,source=/uv,target=/uv \
    python3 -m venv --without-pip /opt/headway/venv \
 && SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt UV_LINK_MODE=copy \
    PYC_INVALIDATION_MODE=UNCHECKED_HASH \
    /uv/bin/uv pip install --python /opt/headway/venv/bin/python --no-deps --require-hashes \
    --compile-bytecode --requirements /opt/headway/requirements.txt \
 && cd /opt/headway/venv/lib/python3*/site-packages \
 && find torch nvidia \( -name '*.a' -o -type d -name include -prune \) -exec rm -rf {} +
# Container runtimes for NVIDIA mount the CUDA driver only where the image asks for "compute".
ENV PATH=/opt/headway/bin:/opt/headway/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/headway/lib PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
EXPOSE 8000 9000
ENTRYPOINT ["headway-server"]

# The layers of the code.
COPY crds/headway_api /opt/headway/lib/headway_api
COPY server/headway_server /opt/headway/lib/headway_server
COPY --from=native /built /opt/headway/lib/headway_server/native/built
RUN mkdir /opt/headway/bin \
 && printf '#!/bin/sh\nexec python3 -m headway_server "$@"\n' > /opt/headway/bin/headway-server \
 && chmod 755 /opt/headway/bin/headway-server \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/headway/lib
USER 65532:65532
