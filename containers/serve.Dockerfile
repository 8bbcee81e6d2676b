# Serves a model on a CPU (docs/serving.md). In the root of a clone:
#   docker build -f containers/serve.Dockerfile -t bert-serve .
#   docker run --read-only --tmpfs /tmp --cap-drop=ALL -p 127.0.0.1:8501:8501 \
#     -v "$PWD/my_classifier:/model:ro" bert-serve
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends binutils && python -m venv /venv
ENV PATH=/venv/bin:$PATH PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements.txt requirements-dev.txt constraints.txt ./
# TensorFlow without CUDA, headers and symbols, and without what it needs to train alone.
RUN sed 's/^tensorflow==/tensorflow-cpu==/' requirements.txt > serve.txt \
    && grep -E '^(aiohttp|prometheus_client)==' requirements-dev.txt >> serve.txt \
    && pip install --no-compile -r serve.txt \
    && pip uninstall -y grpcio joblib libclang narwhals pillow scikit-learn tensorboard \
       tensorboard-data-server threadpoolctl \
    && rm -r /venv/lib/python3*/site-packages/tensorflow/include \
    && strip --strip-unneeded /venv/lib/python3*/site-packages/tensorflow/libtensorflow_*.so.2
COPY pyproject.toml README.md LICENSE *.py ./
COPY bert bert
RUN pip install --no-compile --no-deps . && pip uninstall -y setuptools pip

FROM python:3.11-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8501
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/healthz', timeout=4)"]
ENTRYPOINT ["bert", "serve", "--model_dir=/model", "--host=0.0.0.0", "--log_format=json"]
