# The controller (and the jobs' data master):   docker build -t you/edl-controller .
# A base for trainers, python and edl only:     docker build -t you/trainer-base --target trainer-base .
# For several kinds of machines:                docker buildx build --platform linux/amd64,linux/arm64 ...
#
# Each stage starts from BASE: any image with python3 >= 3.11.2 and its venv module; give it with its digest to pin it.
# Libraries are those of requirements/ (`make lock`), by hash. pip's own settings are build arguments, so that it builds
# without the internet: PIP_INDEX_URL, or PIP_NO_INDEX=1 with PIP_FIND_LINKS.
ARG BASE=python:3.12-slim

FROM ${BASE} AS tools
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements ./requirements
RUN python3 -m venv /tools \
 && /tools/bin/pip install --quiet --require-hashes -r requirements/build.txt

FROM tools AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY edl ./edl
RUN /tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist .

FROM tools AS libraries
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
RUN python3 -m venv --without-pip /opt/edl \
 && /tools/bin/pip --python /opt/edl/bin/python install --quiet --no-compile --require-hashes -r requirements/controller.txt \
 # The libraries' own tests are a fifth of their size, and nobody runs them here.
 && find /opt/edl/lib -type d -name tests -prune -exec rm -rf {} + \
 # edl uses the credentials of the Kubernetes client; its thousands of generated classes are loaded by name, and never.
 && find /opt/edl/lib -path '*/kubernetes/*client/models/[a-z]*' -delete \
 && find /opt/edl/lib -path '*/kubernetes/*client/api/[a-z]*' -delete

FROM libraries AS controller-files
COPY --from=wheel /dist /dist
RUN /tools/bin/pip --python /opt/edl/bin/python install --quiet --no-compile --no-deps /dist/edl-*.whl \
 # Compiled once here: the root file system is read-only where it runs, and without this each start takes seconds.
 && /opt/edl/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/edl/lib

FROM wheel AS trainer-files
RUN python3 -m venv /opt/edl \
 && /opt/edl/bin/pip install --quiet --no-compile --no-deps /dist/edl-*.whl \
 && /opt/edl/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/edl/lib

# An image built on this one says `USER root` where it installs something.
FROM ${BASE} AS trainer-base
COPY --from=trainer-files /opt/edl /opt/edl
# Jobs of old call the helpers by this path, whoever they run as.
RUN chmod 755 /root \
 && ln -s /opt/edl/bin/k8s_tools /root/k8s_tools.py \
 && mkdir /workspace \
 && chown 65532:65532 /workspace
ENV PATH=/opt/edl/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /workspace
USER 65532:65532
CMD ["python"]

FROM ${BASE} AS controller
COPY --from=controller-files /opt/edl /opt/edl
ENV PATH=/opt/edl/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["edl"]
CMD ["controller"]
