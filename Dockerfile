# The controller's image: docker build -t you/edl-controller .
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY edl ./edl
RUN python3 -m venv /opt/edl \
 && /opt/edl/bin/pip install --no-cache-dir --disable-pip-version-check '.[controller]' \
 && /opt/edl/bin/python -m compileall -q /opt/edl

FROM ${BASE}
COPY --from=build /opt/edl /opt/edl
ENV PATH=/opt/edl/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["edl"]
CMD ["controller"]
