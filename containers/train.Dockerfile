# Trains on NVIDIA GPUs, with the driver and the container toolkit of the host (docs/gpu.md).
# In the root of a clone:
#   docker build -f containers/train.Dockerfile -t bert-train .
#   docker run --gpus all --user "$(id -u)" -v "$PWD:/data" bert-train run_classifier --help
FROM python:3.11-slim
ENV PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements.txt constraints.txt ./
# Alone, so that a change of the code fetches none of it again.
RUN pip install --no-compile -r requirements.txt \
    "tensorflow[and-cuda]==$(sed -n 's/^tensorflow==//p' requirements.txt)"
COPY pyproject.toml README.md LICENSE *.py ./
COPY bert bert
RUN pip install --no-compile '.[gpu]'
ENV HOME=/tmp NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /data
ENTRYPOINT ["bert"]
