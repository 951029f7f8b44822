# SPDX-License-Identifier: Apache-2.0
# A model as an image volume: the folder given as context, under its name, and nothing else.
# docker build -f images/model.Dockerfile --build-arg NAME=SmolLM2-135M-Instruct FOLDER
FROM scratch
ARG NAME
COPY --chown=65532:65532 . /${NAME}
