# One image for the API and both workers; what a container runs is its command.
FROM node:24-slim AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# Not `npm ci`, which wants other platforms' optional binaries in the lock; versions come from the lock all the same.
RUN npm install --omit=dev --no-save --no-audit --no-fund && npm cache clean --force

# The dashboard's pages are built with packages that no process needs.
FROM node:24-slim AS dashboard
WORKDIR /app
COPY package.json package-lock.json .npmrc tsconfig.json ./
RUN npm install --no-save --no-audit --no-fund
COPY dashboard ./dashboard
RUN NODE_ENV=production node_modules/.bin/vite build dashboard --config dashboard/vite.config.ts

FROM node:24-slim
# Compiled code is kept for the next start, outside of what nobody may write to.
ENV NODE_ENV=production NODE_COMPILE_CACHE=/tmp/parley-compiled
WORKDIR /app
COPY --from=packages /app/node_modules ./node_modules
# Readable by whoever runs it, also from a clone that only its owner may read.
COPY --chmod=755 . .
COPY --from=dashboard /app/dashboard/dist ./dashboard/dist
# Nothing here is written to while it runs, so the files stay root's and the process is somebody else.
USER node
EXPOSE 3000
CMD ["node", "src/main.ts"]
