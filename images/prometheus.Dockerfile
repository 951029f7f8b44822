# SPDX-License-Identifier: Apache-2.0
# Debian's Prometheus alone, for clusters that pull no public image.
# From the repository's root: docker build -f images/prometheus.Dockerfile .
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS package
RUN apt-get update \
 && apt-get install --yes --no-install-recommends prometheus

FROM ${BASE}
COPY --from=package /usr/bin/prometheus /usr/bin/prometheus
USER 65532:65532
EXPOSE 9090
ENTRYPOINT ["prometheus"]
