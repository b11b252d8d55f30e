# syntax=docker/dockerfile:1
# Build the image and run the demo: docker build -t etplus . && docker run --rm etplus
# Use files in this folder: docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" etplus why trace.json.gz
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY . .
RUN python -m pip install --no-cache-dir 'build==1.*' && python -m build --wheel --outdir /dist

FROM python:${PYTHON}-slim
ARG EXTRAS=
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    python -m pip install --no-cache-dir "$(echo /dist/*.whl)${EXTRAS:+[$EXTRAS]}"
RUN useradd --uid 1000 --create-home etplus && mkdir /work && chown etplus /work
USER 1000
WORKDIR /work
ENTRYPOINT ["etplus"]
CMD ["demo"]
