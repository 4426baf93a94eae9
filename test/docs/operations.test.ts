import type { Server } from 'node:http';
import { afterAll, expect, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { OPERATIONS, OPERATOR_PREFIX } from '../../src/api/operator-routes.ts';
import { PUBLIC_OPERATIONS, WEB_OPERATIONS } from '../../src/api/document.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { useStack } from '../support/stack.ts';
import { apiDocument } from '../support/validate-response.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const logger = createLogger({ name: 'test', level: 'silent' });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
afterAll(() => lifecycle.close());

/** The part of Express's router that this test reads. */
type Layer = {
  route?: { path: string; methods: Record<string, boolean> };
  handle: { stack?: Layer[] };
  slash: boolean;
  rawPath: string;
};
type App = { router: { stack: Layer[] } };

/** Routes of the dashboard's pages, and of MCP, whose tools its clients list. They are not operations of an API. */
const NOT_OPERATIONS = ['get /', 'post /mcp'];
const routesOf = (layers: Layer[], prefix = ''): string[] =>
  layers.flatMap((layer) => {
    const { route, handle } = layer;
    if (handle.stack && !route) return routesOf(handle.stack, `${prefix}${layer.slash ? '' : layer.rawPath}`);
    const methods = Object.keys(route?.methods ?? {}).filter((method) => method !== '_all');
    return route ? methods.map((method) => `${method} ${prefix}${route.path}`) : [];
  });

const openApp = async (): Promise<App> => {
  let server: Server | undefined;
  const add: Lifecycle['add'] = (name, value, closeIt) => {
    if (name === 'web server') server = value as unknown as Server;
    return lifecycle.add(name, value, closeIt);
  };
  await openApi({ config: readConfig(stack.env), logger, lifecycle: { ...lifecycle, add } });
  const app = server?.listeners('request').find((one) => 'router' in one);
  return app as unknown as App;
};

test('every route of the app is declared, and every declared operation is a route and documented', async () => {
  const app = await openApp();

  const mounted = routesOf(app.router.stack).filter((one) => !NOT_OPERATIONS.includes(one));
  const declared = [
    ...[...PUBLIC_OPERATIONS, ...WEB_OPERATIONS].map(({ method, path }) => `${method} ${path}`),
    ...OPERATIONS.map(({ method, path }) => `${method} ${OPERATOR_PREFIX}${path}`),
  ];
  const documented = apiDocument().operations.map(
    ({ method, path }) => `${method} ${path.replace(/\{(\w+)\}/g, ':$1')}`,
  );

  expect(mounted.toSorted()).toEqual(declared.toSorted());
  expect(documented.toSorted()).toEqual(declared.toSorted());
});

test('a route without a declaration is detected', async () => {
  const app = await openApp();
  const { router } = app as unknown as { router: { stack: Layer[]; get: (path: string, handle: () => void) => void } };

  router.get('/api/v1/undeclared', () => undefined);

  expect(routesOf(router.stack)).toContain('get /api/v1/undeclared');
});
