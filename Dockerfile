# For GPUs, on veRL's image with CUDA 13, torch 2.11, vLLM 0.24 and flash-attn 2.8.3.
#   docker build -t verl-trgrpo .
#   docker run --gpus all --shm-size 16g -v "$PWD/data:/work/data" verl-trgrpo verl-trgrpo doctor
# Not built by this project: look at what doctor says.
ARG BASE=verlai/verl:vllm024.dev2
FROM ${BASE}

WORKDIR /work
COPY . /opt/verl-trgrpo
# The image has no veRL, transformers 5.3 and numpy 1; the extra `gpu` brings veRL, which lifts both. What is compiled for the
# image's CUDA stays as it is.
RUN pip list --format=freeze | grep -iE '^(torch|torchvision|torchaudio|vllm|flash[-_]attn)==' > /tmp/kept.txt \
    && pip install --no-cache-dir --constraint /tmp/kept.txt "/opt/verl-trgrpo[gpu,puzzles]"
CMD ["verl-trgrpo", "--help"]
