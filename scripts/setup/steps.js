import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { chromiumStep } from './chromium.js';
import { stopCommands } from './command.js';
import { dashboardStep } from './dashboard.js';
import { withLock } from './lock.js';
import { mongodbStep } from './mongodb.js';
import { nodeStep } from './node.js';
import { packagesStep } from './packages.js';
import { redisStep } from './redis.js';
import { SetupError, createReport } from './report.js';
import { semanticStep } from './semantic.js';

const STEPS = {
  node: nodeStep,
  packages: packagesStep,
  dashboard: dashboardStep,
  redis: redisStep,
  mongodb: mongodbStep,
  chromium: chromiumStep,
  semantic: semanticStep,
};

/**
 * Has everything named in `needs` (Node always) on this machine, and hands back the environment to start the real thing
 * with: the right Node first on PATH, `SETUP_FOUND` saying how what was found is to be started, and a place where Node keeps
 * compiled code, so that every process but the first starts in two thirds of the time.
 */
export const setUp = async ({ root, needs, talkative }) => {
  const report = createReport();
  const since = Date.now();
  const context = { root, env: { NODE_COMPILE_CACHE: join(root, '.local/compile-cache'), ...process.env } };
  const found = {};
  const texts = [];
  const note = (step, result) => {
    if (result.env) context.env = result.env;
    if (result.found) found[step.key] = result.found;
    texts.push(`${step.name} ${result.text}`);
  };
  const take = async (step) => (await step.find(context)) ?? fetchIt(step, context, report);
  // The largest download needs none of the others, so it runs beside them.
  const wanted = needs.includes('semantic');
  const there = semanticStep.find(context);
  const model = there || !wanted ? there : takeModel(context, report);
  try {
    for (const step of ['node', ...needs.filter((name) => name !== 'semantic')].map((name) => STEPS[name])) {
      note(step, await take(step));
    }
  } catch (cause) {
    context.over = true;
    stopCommands('SIGTERM'); // nothing to wait for any more
    throw cause;
  }
  const taken = await model;
  if (wanted) note(semanticStep, taken);
  if (talkative || report.didAnything()) {
    report.note(`ready in ${((Date.now() - since) / 1000).toFixed(1)} s: ${texts.join(', ')}`);
  }
  return { found, env: { ...context.env, ...taken?.settings, SETUP_FOUND: JSON.stringify(found) } };
};

/** Whatever goes wrong with it, the service runs without: one line says so. */
const takeModel = async (context, report) => {
  try {
    return await fetchIt(semanticStep, context, report);
  } catch (cause) {
    const way = 'Answers go by words alone (SETUP_SEMANTIC=off stops trying).';
    if (!context.over) report.note(`${semanticStep.name}: ${cause.message}. ${way}`);
    return { text: 'not here' };
  }
};

const isWritable = (folder) => {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
};

/** In an image, say, where whoever runs it may not write: what is there is used as it is. */
const asGiven = (step, { root, env }) => {
  const text = step.given?.({ root });
  if (text === undefined)
    throw new SetupError(`${step.name} is missing here, and ${root} cannot be written to to set it up.`);
  return { text, env };
};

const fetchIt = async (step, context, report) =>
  isWritable(context.root) ? fetchLocked(step, context, report) : asGiven(step, context);

const fetchLocked = (step, context, report) =>
  withLock(
    join(context.root, step.lock ?? '.local/setup.lock'),
    () => report.note(`${step.name}: another command is setting up this folder, waiting for it`),
    async () => {
      let result = await step.find(context); // whoever held the lock before may have done it
      if (result) return result;
      await report.step(step.name, step.doing, async (onLine) => {
        await step.make(context, onLine);
        result = await step.find(context);
        if (!result) throw new SetupError(`${step.name}: fetched, but still not usable`);
        return result.text;
      });
      return result;
    },
  );
