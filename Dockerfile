# For GPUs, on veRL's published image, which brings veRL's dependencies, CUDA, torch and vLLM that fit together.
#   docker build -t verl-trgrpo --build-arg BASE=verlai/verl:TAG .
#   docker run --gpus all --shm-size 16g -v "$PWD/data:/work/data" verl-trgrpo verl-trgrpo doctor
# Not built by this project, which had no GPU at hand: take a TAG whose veRL is 0.9, and look at what doctor says.
ARG BASE
FROM ${BASE}

WORKDIR /work
COPY . /opt/verl-trgrpo
# Without dependencies: the image's torch and vLLM must stay as they are. These are the ones that it may lack.
RUN pip install --no-cache-dir --no-deps /opt/verl-trgrpo "verl>=0.9,<0.10" "TransferQueue>=0.1.10" \
    && pip install --no-cache-dir "reasoning-gym==0.1.25" "mpmath>=1.3" "tyro>=1.0,<2" "scipy>=1.15" "matplotlib>=3.9" \
        "tantivy>=0.26" "starlette>=0.46" "uvicorn>=0.37" "aiohttp>=3.11"
CMD ["verl-trgrpo", "--help"]
