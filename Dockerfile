# The images of a testbed: `provider` for Fog providers and the Cloud, `testbed` for everybody else.
#
#   docker build --target provider --tag fogveil-provider .
#   docker build --target testbed --tag fogveil-testbed .
#
# Neither holds a compiler, pip's caches, a configuration or a key; neither needs torch, for a
# trained agent acts without it.

# Everything is installed into /opt/fogveil, which holds no pip: the later stages copy it.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv --without-pip /opt/fogveil
COPY constraints.txt ./

FROM build AS build-provider
RUN pip --python /opt/fogveil/bin/python install \
        --no-cache-dir --disable-pip-version-check --constraint constraints.txt \
        aiomqtt cryptography grpcio grpcio-reflection numpy protobuf uvloop
COPY proto/fogveil /opt/fogveil/code/fogveil
COPY broker /opt/fogveil/code/broker
COPY provider_node /opt/fogveil/code/provider_node
RUN python -m compileall -q /opt/fogveil/code

FROM build AS build-testbed
COPY pyproject.toml ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" >needed.txt \
    && pip --python /opt/fogveil/bin/python install \
        --no-cache-dir --disable-pip-version-check --constraint constraints.txt --requirement needed.txt
COPY . ./
RUN pip --python /opt/fogveil/bin/python install \
        --no-cache-dir --disable-pip-version-check --no-deps .

# What both have in common once they are built: nobody's user, one folder to write to, a health
# check that asks the participant over a Unix socket within the container.
FROM python:3.11-slim AS contained
ENV PATH=/opt/fogveil/bin:$PATH \
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
    CMD ["python", "-m", "fogveil.health"]
LABEL org.opencontainers.image.title="fogveil" \
      org.opencontainers.image.description="A federated testbed of private fog providers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"

FROM contained AS provider
COPY --from=build-provider /opt/fogveil /opt/fogveil
ENV PYTHONPATH=/opt/fogveil/code
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["python", "-m", "provider_node", "--config", "config.json"]

FROM contained AS testbed
COPY --from=build-testbed /opt/fogveil /opt/fogveil
ARG SOURCE=unknown
LABEL org.fogveil.source=$SOURCE
CMD ["fogveil", "--help"]
