# The command line, with compiled kernels, pages and texts. From the root of a clone:
#   docker build -f docker/fedrank.Dockerfile -t fedrank .
#   docker run --rm -v "$PWD/runs:/fedrank/runs" -v "$HOME/data:/data:ro" fedrank demo
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY fedrank fedrank
COPY reproductions reproductions
COPY zoo zoo
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . ./zoo

FROM python:3.13-slim
ARG EXTRAS=jax,report,sklearn,texts
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir "$(ls /wheels/fedrank-*.whl)[$EXTRAS]" /wheels/fedrank_zoo-*.whl \
 && useradd --create-home --uid 1000 fedrank \
 && install --directory --owner fedrank /fedrank /fedrank/runs /data /folder
USER 1000:1000
WORKDIR /fedrank
ENV FEDRANK_DATA=/data JAX_PLATFORMS=cpu
ENTRYPOINT ["fedrank"]
CMD ["--help"]
