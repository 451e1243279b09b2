# A hub. Its folder is the volume /hub. From the root of a clone:
#   docker build -f docker/hub.Dockerfile -t fedrank-hub .
#   docker run -d --name hub -p 127.0.0.1:8750:8750 -v hub:/hub fedrank-hub --n-features 46 --cohort 1000
# Later starts go on where it stopped, and need no settings. It speaks plain HTTP: put a reverse proxy with TLS in front
# of it and name the proxy with --proxies, or give --certificate and --key. A relay and a witness are the same image with
# another entry point; docker/compose starts them all. The root file system may be read-only: give it a /tmp.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY fedrank fedrank
COPY zoo zoo
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . ./zoo

FROM python:3.13-slim
COPY --from=build /wheels /wheels
# Numba compiles the sum over a round's reports; the zoo has what checks statements of devices' platforms.
RUN python -m pip install --no-cache-dir "$(ls /wheels/fedrank-*.whl)[attestation,postgres,serve]" /wheels/fedrank_zoo-*.whl \
 && useradd --create-home --uid 1000 fedrank \
 && install --directory --owner fedrank --mode 700 /hub /copy /witness
USER 1000:1000
ENV JAX_PLATFORMS=cpu NUMBA_CACHE_DIR=/tmp/numba PYTHONDONTWRITEBYTECODE=1
VOLUME ["/hub"]
EXPOSE 8750
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8750/livez', timeout=4)"]
# A hub ends in order when it gets SIGTERM: docker stop.
ENTRYPOINT ["fedrank", "hub", "serve", "/hub", "--host", "0.0.0.0"]
