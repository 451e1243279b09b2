# A silo's node, over Flower. It opens no port to the outside: it asks the coordinator's link for rounds, if need be
# through a proxy (HTTPS_PROXY). From the root of a clone:
#   docker build -f docker/silo.Dockerfile -t fedrank-silo .
#   docker run --rm -v silo:/silo --entrypoint fedrank fedrank-silo silos key --folder /silo
# docker/compose/silo.yml starts it. The volume /silo has the silo's key and the book of what left it: it outlives the
# container, and is not restored from a backup. The root file system may be read-only: give it a /tmp.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY fedrank fedrank
COPY flower flower
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . ./flower

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir "$(ls /wheels/fedrank-*.whl)[tables]" /wheels/fedrank_flower-*.whl \
 && useradd --create-home --uid 1000 fedrank \
 && install --directory --owner fedrank --mode 700 /silo
USER 1000:1000
# Flower neither calls home nor installs packages, and keeps apps where it may write. A proxy is not asked for the
# node's own port.
ENV FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \
    FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.05 FLWR_HOME=/tmp/flower NO_PROXY=127.0.0.1,localhost \
    NUMBA_CACHE_DIR=/tmp/numba PYTHONDONTWRITEBYTECODE=1
VOLUME ["/silo"]
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9094), 4)"]
ENTRYPOINT ["flower-supernode"]
