# For GPUs, on veRL's image with CUDA 13, torch 2.11, vLLM 0.24 and flash-attn 2.8.3.
#   docker build -t verl-trgrpo .
#   docker run --gpus all --shm-size 64g -it -v "$PWD/data:/work/data" -v "$PWD/runs:/work/runs" -v "$PWD/models:/work/models" \
#     verl-trgrpo verl-trgrpo doctor
# Data, runs and the model cache outlive the container (docs/before_you_rent.md). Not built by this project: look at what doctor says.
ARG BASE=verlai/verl:vllm024.dev2
FROM ${BASE}

# The repository itself, so that recipes/run.sh finds data and writes runs where they are mounted
WORKDIR /work
COPY . /work
# The image has no veRL, transformers 5.3 and numpy 1; the extra `gpu` brings veRL, which lifts both. What is compiled for the
# image's CUDA stays as it is.
RUN pip list --format=freeze | grep -iE '^(torch|torchvision|torchaudio|vllm|flash[-_]attn)==' > /tmp/kept.txt \
    && pip install --no-cache-dir --constraint /tmp/kept.txt -e "/work[gpu,puzzles]"
ENV HF_HOME=/work/models
VOLUME ["/work/data", "/work/runs", "/work/models"]
CMD ["verl-trgrpo", "--help"]
