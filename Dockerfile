# The images of a testbed: one for each role of a participant, and `testbed` for the experimenter.
#
#   docker build --target provider --tag fogveil-provider .
#
# and likewise agent, sources, clock, broker and testbed. Each participant's image holds what all
# participants share (core, protocol, v1, broker), its own portion of the package `fogveil`, and the
# libraries that these import: no simulation, no figures, no torch. None holds a compiler, pip, a
# configuration or a key. A trained agent acts without torch, so `testbed` has none either.

# Libraries are installed into /opt/fogveil, which holds no pip; the images copy it.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv --without-pip /opt/fogveil
COPY constraints.txt ./

FROM build AS participant-libraries
RUN pip --python /opt/fogveil/bin/python install \
        --no-cache-dir --disable-pip-version-check --constraint constraints.txt \
        aiomqtt cryptography dacite grpcio grpcio-reflection numpy protobuf uvloop

# What a learning agent's hyperparameters need besides: a layer of its own, so the rest is shared.
FROM build AS agent-libraries
RUN pip --python /opt/fogveil/bin/python install --target /opt/fogveil/agent-libraries \
        --no-cache-dir --disable-pip-version-check --constraint constraints.txt pydantic

# All of the code, compiled; each image copies its portions. (Hashes instead of times in the compiled
# files: what has not changed is not copied again.)
FROM python:3.11-slim AS code
COPY proto/fogveil broker/fogveil provider_node/fogveil agent/fogveil testbed/fogveil /code/fogveil/
COPY scenarios /code/fogveil/testbed/scenario/shipped
RUN python -m compileall -q --invalidation-mode unchecked-hash /code

# What all images have in common: an unprivileged user, one folder to write to, a health check that
# asks the participant over a Unix socket within the container.
FROM python:3.11-slim AS base
ENV PATH=/opt/fogveil/bin:$PATH \
    PYTHONPATH=/opt/fogveil/code \
    FOGVEIL_HEALTH=/tmp/health \
    GRPC_ENABLE_FORK_SUPPORT=0 \
    GRPC_EXPERIMENTS=-event_engine_client,-event_engine_listener \
    GRPC_VERBOSITY=NONE \
    OMP_NUM_THREADS=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin fogveil \
    && install --directory --owner fogveil --group fogveil --mode 700 /participant
WORKDIR /participant
USER fogveil
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=2 \
    CMD ["python", "-P", "-m", "fogveil.protocol.health"]
LABEL org.opencontainers.image.title="fogveil" \
      org.opencontainers.image.description="A federated testbed of private fog providers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"

FROM base AS participant
COPY --from=participant-libraries /opt/fogveil /opt/fogveil
COPY --from=code /code/fogveil/core /opt/fogveil/code/fogveil/core
COPY --from=code /code/fogveil/protocol /opt/fogveil/code/fogveil/protocol
COPY --from=code /code/fogveil/v1 /opt/fogveil/code/fogveil/v1
COPY --from=code /code/fogveil/broker /opt/fogveil/code/fogveil/broker

FROM participant AS provider
COPY --from=code /code/fogveil/provider_node /opt/fogveil/code/fogveil/provider_node
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["python", "-P", "-m", "fogveil.provider_node", "--config", "config.json"]

FROM participant AS agent
ENV PYTHONPATH=/opt/fogveil/code:/opt/fogveil/agent-libraries
COPY --from=agent-libraries /opt/fogveil/agent-libraries /opt/fogveil/agent-libraries
COPY --from=code /code/fogveil/agent /opt/fogveil/code/fogveil/agent
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["python", "-P", "-m", "fogveil.agent", "--config", "config.json"]

FROM participant AS sources
COPY --from=code /code/fogveil/sources /opt/fogveil/code/fogveil/sources
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["python", "-P", "-m", "fogveil.sources", "--config", "config.json"]

FROM participant AS clock
COPY --from=code /code/fogveil/clock /opt/fogveil/code/fogveil/clock
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["python", "-P", "-m", "fogveil.clock", "--config", "config.json"]

# The built-in broker, which is no participant and has no health socket.
FROM participant AS broker
HEALTHCHECK NONE
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["python", "-P", "-m", "fogveil.broker", "--host", "0.0.0.0", "--port", "8883"]

# The experimenter's image: the whole package, with the libraries that pyproject.toml names.
FROM build AS testbed-libraries
COPY pyproject.toml ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" >needed.txt \
    && pip --python /opt/fogveil/bin/python install \
        --no-cache-dir --disable-pip-version-check --constraint constraints.txt --requirement needed.txt \
    && printf '#!/bin/sh\nexec python -P -m fogveil.testbed.cli "$@"\n' >/opt/fogveil/bin/fogveil \
    && chmod 755 /opt/fogveil/bin/fogveil

FROM base AS testbed
HEALTHCHECK NONE
COPY --from=testbed-libraries /opt/fogveil /opt/fogveil
COPY --from=code /code /opt/fogveil/code
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["fogveil", "--help"]
